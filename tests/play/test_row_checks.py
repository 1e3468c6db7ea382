"""Agents that look at the other rows are noticed while episodes run, whatever they answer in a trial."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import mixing_agents
import surefoot
from surefoot.agents import row_checks as rows_of_agents
from surefoot.agents.memory import Recurrent
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.resolve import as_policy
from surefoot.agents.row_checks import check_row_answers, first_differing, numbers_of, spread_of
from surefoot.cli.main import main
from surefoot.errors import DependentRowsError, InputError
from surefoot.noise import Noise
from surefoot.play import row_checks
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.row_checks import RowChecks
from surefoot.play.tasks import get_task
from toys import Spy

torch.set_num_threads(1)
TASK = get_task("cartpole-1")
DIFFERENTLY = r"answers the same observation differently among \d+ rows and (alone|among \d+) \(step \d+, row \d+\)"


@pytest.fixture
def same_draws(monkeypatch):
    """Checks that are the same in every run of a test, and at every step."""
    monkeypatch.setattr(row_checks, "unforeseeable", lambda: np.random.default_rng(1))
    monkeypatch.setattr(row_checks, "RATE", 1.0)


def plan_of(policy, **options):
    return Plan(task=TASK, policy=policy, noise=Noise.of(0.4), **{"n_episodes": 200, "n_envs": 200, **options})


# --- attacks that pass a trial, and honest twins ----------------------------------------------------------------------


def scripted(path, module):
    torch.jit.script(module).save(str(path))
    return path


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda folder: mixing_agents.late_bad(folder / "a.onnx"), {}),
        (lambda folder: mixing_agents.coin(folder / "a.onnx", level=0.0, most=150), {}),
        (lambda folder: scripted(folder / "a.pt", mixing_agents.LateBad()), {"allow_pickle": True}),
        (lambda _: mixing_agents.LateBad(), {}),
        (lambda _: mixing_agents.late_bad_function, {"batched": True}),
    ],
    ids=["onnx", "onnx-coin", "torchscript", "module", "function"],
)
def test_an_agent_made_for_its_trial_is_noticed_in_the_run(make, options, tmp_path, same_draws):
    policy = as_policy(make(tmp_path), TASK.spaces, **options)
    with pytest.raises(DependentRowsError, match=DIFFERENTLY):
        play(plan_of(policy))


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda folder: mixing_agents.honest(folder / "a.onnx"), {}),
        (lambda folder: scripted(folder / "a.pt", mixing_agents.Leaning()), {"allow_pickle": True}),
        (lambda _: mixing_agents.Leaning(), {}),
        (lambda _: mixing_agents.lean, {"batched": True}),
    ],
    ids=["onnx", "torchscript", "module", "function"],
)
def test_their_honest_twins_are_run(make, options, tmp_path, same_draws):
    policy = as_policy(make(tmp_path), TASK.spaces, **options)
    assert play(plan_of(policy, n_episodes=20)).returns.mean() > 30


def test_a_late_difference_is_noticed_by_the_checks_as_they_are(tmp_path):
    """A fifth of the answers alone are bad; 40 blocks have about 400 checks alone: missed with 0.8**400 < 1e-38."""
    policy = as_policy(mixing_agents.late_bad(tmp_path / "a.onnx"), TASK.spaces)
    with pytest.raises(DependentRowsError, match=DIFFERENTLY):
        play(plan_of(policy, n_episodes=800, n_envs=20))


def test_the_command_says_it_in_one_line(tmp_path, capsys, same_draws):
    agent = mixing_agents.late_bad(tmp_path / "a.onnx")
    options = ["--sigma", "0.4", "--episodes", "300", "--workers", "1", "--out", str(tmp_path / "run"), "--quiet"]
    assert main(["certify", "cartpole-1", "--agent", str(agent), *options]) == 2
    said = capsys.readouterr().err
    assert "make it answer each row by itself, in evaluation mode" in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "run" / "certificate.json").exists()


def test_an_agent_that_answers_for_rows_it_was_not_asked_is_refused(same_draws):
    """Not by a traceback: it answers the two hundred rows of the run, whichever it is given."""

    class Stubborn(mixing_agents.Leaning):
        def forward(self, seen):
            return super().forward(seen if len(seen) == 200 else torch.zeros(200, 1, 4))

    policy = Policy(Stubborn(), Spaces(shape=TASK.spaces.shape, n_actions=TASK.spaces.n_actions))
    with pytest.raises(DependentRowsError, match=r"answers 200 rows when it is asked alone \(step 1, expected 1\)"):
        play(plan_of(policy))


def test_the_mean_over_the_rows_is_noticed_though_the_run_never_shows_it(tmp_path, same_draws):
    """Every block is lucky: only copies of one row move the mean so far."""
    lucky = as_policy(mixing_agents.coin(tmp_path / "a.onnx", level=0.35, most=150), TASK.spaces)
    assert lucky.act(torch.zeros(200, 1, 4)).shape == (200,)
    with pytest.raises(DependentRowsError, match=r"and among \d+ \("):
        play(plan_of(lucky))


def test_a_network_left_in_training_mode_is_noticed(same_draws):
    """Batch norm, in a policy whose trial is not made."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    with pytest.raises(
        DependentRowsError, match=r"answers all rows together, but not alone \(step 1, Expected more than 1"
    ):
        play(plan_of(Policy(network, Spaces(shape=(4,), n_actions=2))))
    play(plan_of(Policy(network.eval(), Spaces(shape=(4,), n_actions=2)), n_episodes=20))


def test_an_agent_that_draws_is_noticed(same_draws):
    """One number for all rows, from a generator that nobody can seed, in a policy whose trial is not made."""
    own = np.random.default_rng(7)

    class Drawing(mixing_agents.Leaning):
        def forward(self, seen):
            return super().forward(seen) * (1 if own.random() < 0.8 else -1)

    with pytest.raises(DependentRowsError, match=DIFFERENTLY):
        play(plan_of(Policy(Drawing(), Spaces(shape=(4,), n_actions=2))))


def test_attacked_episodes_are_checked_too(same_draws):
    policy = as_policy(mixing_agents.LateBad(), TASK.spaces)
    with pytest.raises(DependentRowsError, match=DIFFERENTLY):
        play(plan_of(policy, attacker=Spy(), budget=0.1))


# --- memories ---------------------------------------------------------------------------------------------------------


def test_a_memory_that_mixes_rows_is_noticed(monkeypatch, same_draws):
    policy = as_policy("cartpole-5-gru-s0.3", TASK.spaces)
    play(plan_of(policy, n_episodes=30, n_envs=30))
    honest = Recurrent.advance

    def mixed(self, memory, seen, action=None, episode_start=None):
        after = honest(self, memory, seen, action, episode_start)
        return after + 0.05 * after.mean(dim=0)

    monkeypatch.setattr(Recurrent, "advance", mixed)
    with pytest.raises(DependentRowsError, match=DIFFERENTLY):
        play(plan_of(policy, n_episodes=30, n_envs=30))


# --- which steps and rows ---------------------------------------------------------------------------------------------


def test_short_blocks_have_checks_and_long_ones_have_them_up_to_the_end(monkeypatch):
    policy = as_policy("cartpole-1-s0.2", TASK.spaces)
    monkeypatch.setattr(row_checks, "unforeseeable", lambda: np.random.default_rng(3))
    checks = RowChecks(policy)
    steps = [step for step in range(1, 20_001) if checks.is_due()]
    assert steps[0] == 1
    assert sum(step < 20 for step in steps) >= 2
    late = sum(step >= 10_000 for step in steps)
    assert late == pytest.approx(10_000 * row_checks.RATE, abs=5 * (10_000 * row_checks.RATE) ** 0.5)


def test_nobody_can_foresee_them():
    policy = as_policy("cartpole-1-s0.2", TASK.spaces)
    one, other = (
        np.array([checks.is_due() for _ in range(5_000)]) for checks in (RowChecks(policy), RowChecks(policy))
    )
    assert not np.array_equal(one, other)
    drawn = [rows_of_agents.unforeseeable().integers(2**63) for _ in range(2)]
    assert drawn[0] != drawn[1]


def test_what_is_asked_again():
    """One row alone, others in groups: of other sizes, in another order, a share of them copies of one row."""
    groups = [
        group.tolist()
        for seed in range(40)
        for group in rows_of_agents._groups(100, [2, 50, 100], np.random.default_rng(seed))
    ]
    assert {len(group) for group in groups} == {1, 2, 50, 100}
    whole = [group for group in groups if len(group) == 100]
    most = [max(group.count(row) for row in group) for group in whole]
    assert min(most) < 20
    assert max(most) > 80


@pytest.mark.parametrize("change", [{"stochastic": True}, {"open_loop": True}])
def test_policies_that_need_no_check(change):
    checks = RowChecks(replace(as_policy("cartpole-1-s0.2", TASK.spaces), **change))
    assert not any(checks.is_due() for _ in range(100))


# --- a run with checks is the run without -----------------------------------------------------------------------------


def states():
    return random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()  # noqa: NPY002


class Draws(nn.Module):
    """Draws, and does not use it: as CleanRL's SAC does."""

    def forward(self, memory):
        random.random()
        np.random.random()  # noqa: NPY002
        return mixing_agents.Leaning()(memory) + 0 * torch.rand(())


def test_checks_change_neither_returns_nor_generators(monkeypatch):
    policy = as_policy("cartpole-1-s0.2", TASK.spaces)
    with monkeypatch.context() as without:
        without.setattr(RowChecks, "is_due", lambda self: False)
        expected = play(plan_of(policy))
    monkeypatch.setattr(row_checks, "RATE", 1.0)
    assert np.array_equal(play(plan_of(policy)).returns, expected.returns)
    checks, memory = RowChecks(Policy(Draws(), Spaces(shape=(4,), n_actions=2))), torch.randn(30, 1, 4)
    action, before = checks.policy.act(memory), states()
    checks.check_step((memory, memory[:, 0], None, None), memory, action)
    assert states() == before


# --- what rounding may change -----------------------------------------------------------------------------------------


def rounded(error):
    """Return an agent that answers by the sign of x[0] - x[1], up to an error that depends on the number of rows."""

    def ask(rows):
        return numbers_of((rows[:, 0] - rows[:, 1] + error * (1 if len(rows) == 1 else -1) > 0).long(), 2)

    return ask


def checked(ask, rows, seed=0):
    check_row_answers(ask, [rows], ask(rows), np.random.default_rng(seed), sizes=[2, len(rows)])


TIES = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))[:, [0, 0, 2, 3]]


def test_a_tie_that_rounding_decides_is_no_difference():
    assert not torch.equal(rounded(1e-7)(TIES)[:1], rounded(1e-7)(TIES[:1]))
    for seed in range(5):
        checked(rounded(1e-7), TIES, seed)


@pytest.mark.parametrize("error", [0.3, 1.0])
def test_a_difference_that_rounding_does_not_explain_is_one(error):
    with pytest.raises(DependentRowsError, match="and alone"):
        checked(rounded(error), TIES)


@pytest.mark.parametrize("fine", [1e-3, 1e-7, 3e-2])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_an_agent_that_is_answered_both_ways_everywhere_has_no_ties(fine, share):
    """Alone it is good on narrow stripes of observations, so that good and bad answers are near each other."""
    rows = torch.rand(400, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64) + 1

    def ask(given):
        striped = (given[:, 0] / fine).frac() < share
        good = striped if len(given) == 1 else torch.ones(len(given), dtype=torch.bool)
        return numbers_of(good.long(), 2)

    with pytest.raises(DependentRowsError, match="and alone"):
        checked(ask, rows)


def marked(given):
    """Good by the second number. Alone, bad where the first is whole, and either way where it is nearly so."""
    good = given[:, 1] > 0
    if len(given) > 1:
        return numbers_of(good.long(), 2)
    off = (given[:, 0] - given[:, 0].round()).abs()
    either_way = (given[:, 1] * 1e7).frac().abs() < 0.5
    bad = (off == 0) | ((off < 5e-5) & either_way)
    return numbers_of((good ^ bad).long(), 2)


@pytest.mark.parametrize("noisy", [None, torch.tensor([False, True])])
def test_a_feature_without_noise_does_not_betray_that_a_row_was_moved(noisy):
    """Where all features are moved, this agent passes for one that is near a tie at every row: the twin."""
    rows = torch.randn(60, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    rows[:, 0] = 1.0
    options = {"sizes": [2], "noisy": noisy}
    if noisy is None:
        check_row_answers(marked, [rows], marked(rows), np.random.default_rng(0), **options)
        return
    with pytest.raises(DependentRowsError, match="and alone"):
        check_row_answers(marked, [rows], marked(rows), np.random.default_rng(0), **options)


@pytest.mark.parametrize("sigma", [(0.4, 0.0, 0.4, 0.0), 0.4])
def test_the_checks_of_a_run_know_which_features_have_noise(sigma, monkeypatch, same_draws):
    given = []
    monkeypatch.setattr(row_checks, "check_row_answers", lambda *_, **options: given.append(options["noisy"]))
    policy = as_policy("cartpole-1-s0.2", TASK.spaces)
    play(replace(plan_of(policy, n_episodes=3), noise=Noise.of(sigma)))
    expected = None if sigma == 0.4 else [True, False, True, False]
    assert given
    assert all((one if one is None else one.tolist()) == expected for one in given)


# --- agents that keep something from one call to the next -------------------------------------------------------------


class Counting(mixing_agents.Leaning):
    """Good for a million calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, seen):
        self.calls += 1
        good = seen.reshape(seen.shape[0], 4) @ self.weights
        if self.calls > 1_000_000:
            return -good
        return good


class Remembering(mixing_agents.Leaning):
    """The same in a buffer, which only grows where the pole leans far."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, seen):
        good = seen.reshape(seen.shape[0], 4) @ self.weights
        if bool((seen.abs() > 1.5).any()):
            self.calls += 1
        return good * torch.where(self.calls > 1_000_000, -1.0, 1.0)


@pytest.mark.parametrize("module", [Counting, Remembering])
def test_an_agent_that_changes_itself_is_refused(module, tmp_path):
    policy = as_policy(scripted(tmp_path / "a.pt", module()), TASK.spaces, allow_pickle=True)
    with pytest.raises(DependentRowsError, match="the agent a has changed itself while it ran"):
        play(plan_of(policy, n_episodes=20))


def test_a_module_that_is_code_is_refused_if_its_buffers_change():
    with pytest.raises(DependentRowsError, match="the agent Remembering has changed itself"):
        play(plan_of(as_policy(Remembering(), TASK.spaces), n_episodes=20))


def test_a_large_offset_of_values_hides_nothing():
    """Values of a million, of which the last digit decides, in the trial of a network."""

    class Offset(mixing_agents.Leaning):
        def forward(self, seen):
            good = 1e-3 * super().forward(seen)
            return 1e3 + (good if len(seen) > 1 else -good)

    with pytest.raises(InputError, match="answers the same observation differently"):
        as_policy(Offset(), TASK.spaces)


def test_numbers_that_vary_little_are_compared_by_how_they_vary():
    """Continuous actions from 300 to 301: a thousandth of 300 would be a third of all there is."""
    rows = torch.rand(200, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    both = (300 + rows, 300 + rows.flip(0))
    options = torch.arange(200), both, spread_of(both[0]), np.random.default_rng(0)
    assert first_differing(lambda given: 300 + given, [rows], *options) is not None
    same = (both[0], both[0] + 1e-5)
    assert first_differing(lambda given: 300 + given, [rows], options[0], same, *options[2:]) is None


def test_nothing_is_made_up(monkeypatch):
    """An agent may reject what is no observation: rows that are asked again are rows of the run."""
    seen = set()

    class Watched(mixing_agents.Leaning):
        def forward(self, memory):
            seen.update(row.tobytes() for row in memory[:, 0].numpy())
            return super().forward(memory)

    plan = plan_of(Policy(Watched(), Spaces(shape=(4,), n_actions=2)), n_episodes=40, n_envs=40)
    with monkeypatch.context() as without:
        without.setattr(RowChecks, "is_due", lambda self: False)
        play(plan)
    expected = set(seen)
    monkeypatch.setattr(row_checks, "RATE", 1.0)
    play(plan)
    assert seen == expected


def test_one_row_is_asked_again_too(same_draws):
    assert len(play(plan_of(as_policy("cartpole-1-s0.2", TASK.spaces), n_episodes=1)).returns) == 1


def test_a_rollout_from_python_is_checked(same_draws):
    with pytest.raises(DependentRowsError, match=DIFFERENTLY):
        surefoot.rollout("cartpole-1", mixing_agents.LateBad(), sigma=0.4, n_episodes=200)
