"""One episode to look at: it is a true play of the channel, it belongs to no certificate, and it spoils nothing."""

import json
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from surefoot.agents.resolve import as_policy
from surefoot.attacks.composed import Composed, EqualDirection, UniformTiming
from surefoot.compute import row_norms
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.environments import make_task
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.tasks import get_task
from surefoot.proof.query import Query
from surefoot.report.finished_run import FinishedRun
from surefoot.report.taped_frames import replay_data
from surefoot.runs import taped_episode as replay
from surefoot.runs.attacked import AttackGrid, attacked_run
from surefoot.runs.certified import certified_run
from surefoot.runs.read import read_tape
from surefoot.runs.taped_episode import attacked_plan, record_replay
from toys import not_normal

TASK = get_task("cartpole-5")
FINISHED = FinishedRun(
    name="run",
    certificate=None,
    attack=None,
    records=(),
    identity={},
    setup={},
    notes={},
    tape=None,
    digests={},
    baseline=None,
)


def plan(**options):
    chosen = {"noise": Noise.of(0.2), "n_episodes": 40, **options}
    return Plan(task=TASK, policy=as_policy("cartpole-5-s0.2", TASK.spaces), **chosen)


def recorded(folder, quiet, attacked=None, **which):
    tracks = {"quiet": quiet}
    if attacked is not None:
        tracks["attacked"] = attacked
    assert record_replay(tracks, folder, **which) is None
    with np.load(folder / "replay.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(arrays.pop("header").tobytes()), arrays


class Falling(gymnasium.Env):
    """A bright square that falls down a dark picture."""

    observation_space = Box(0, 255, (84, 84), np.uint8)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row = 0
        return self._picture(), {}

    def step(self, action):
        self.row += 1
        return self._picture(), 1.0, self.row >= 20, False, {}

    def _picture(self):
        picture = np.full((84, 84), 51, dtype=np.uint8)
        picture[4 * self.row : 4 * self.row + 4, 40:44] = 255
        return picture


@pytest.fixture
def falling():
    gymnasium.register("Falling-v0", entry_point=Falling, max_episode_steps=50)
    yield make_task("Falling-v0", floor=0, ceiling=50)
    gymnasium.registry.pop("Falling-v0")


def test_what_was_seen_is_the_truth_plus_noise_of_sigma(tmp_path):
    facts, arrays = recorded(tmp_path, plan())
    noise = arrays["quiet_seen"] - arrays["quiet_clean"]
    assert not not_normal(noise, 0.2)
    assert not_normal(noise, 0.4)
    assert (facts["environment"], facts["episode"], facts["returns"]) == ("CartPole-v1", None, [])
    assert facts["tracks"]["quiet"] == {
        "agent": "cartpole-5-s0.2",
        "sigma": 0.2,
        "budget": 0.0,
        "scope": None,
        "attacker": None,
    }
    assert set(arrays["quiet_actions"][1:]) <= {0, 1}
    assert arrays["quiet_actions"][0] == -1  # no action before the first observation


def test_the_truth_follows_the_rules_of_the_game(tmp_path):
    _, arrays = recorded(tmp_path, plan())
    environment = gymnasium.make("CartPole-v1").unwrapped
    environment.reset(seed=0)
    clean = arrays["quiet_clean"].astype(np.float64)
    for before, action, after in zip(clean, arrays["quiet_actions"][1:], clean[1:], strict=False):
        environment.state = before  # restarted from each observation: a pole doubles every rounding error
        observation, *_ = environment.step(int(action))
        assert observation == pytest.approx(after, abs=1e-6)


def test_the_attacked_episode_begins_alike_and_keeps_its_budget(tmp_path):
    quiet = plan()
    facts, arrays = recorded(tmp_path, quiet, attacked_plan(quiet, 0.4))
    assert np.array_equal(arrays["attacked_clean"][0], arrays["quiet_clean"][0])
    assert facts["tracks"]["attacked"]["budget"] == 0.4
    assert facts["tracks"]["attacked"]["attacker"]["name"] == "paper"
    assert 0 < arrays["attacked_budget_used"].max() <= 0.4
    assert (np.diff(arrays["attacked_budget_used"]) >= 0).all()
    # The noise is that of the quiet episode, so what differs at the first step is the offset, already on the ledger.
    first = arrays["attacked_seen"][:1] - arrays["quiet_seen"][:1]
    assert row_norms(torch.from_numpy(first)).item() == pytest.approx(arrays["attacked_budget_used"][0], abs=1e-6)


def test_it_is_no_episode_of_the_certificate_and_changes_none(tmp_path):
    quiet = plan()
    before = play(quiet)
    _, arrays = recorded(tmp_path, quiet, attacked_plan(quiet, 0.2))
    after = play(quiet)
    assert np.array_equal(before.returns, after.returns)
    starts = []
    real = replay.play_block(quiet, 0, watch=lambda step: starts or starts.extend(step.observation.tolist()))
    assert np.array_equal(real.returns, before.returns)
    assert len(starts) == 40
    assert not (np.abs(np.array(starts) - arrays["quiet_clean"][0]).max(axis=1) < 1e-6).any()


def test_certified_numbers_do_not_depend_on_the_replay(tmp_path):
    with_one = certified_run(plan(), Query(budgets=(0, 0.2)), tmp_path / "a", record=True, figure=False)
    without = certified_run(plan(), Query(budgets=(0, 0.2)), tmp_path / "b", figure=False)
    assert with_one.to_json() == without.to_json()
    assert (tmp_path / "a" / "replay.npz").exists()
    assert not (tmp_path / "b" / "replay.npz").exists()
    assert "No episode is shown here" in (tmp_path / "b" / "report.html").read_text()


def test_an_episode_of_the_run_is_recorded_from_its_first_step_to_its_last(tmp_path):
    """Rows are dropped and idle while it runs, so that its row changes; the next block begins with another number."""
    quiet = plan(noise=Noise.of(0.8), n_envs=20, episodes_per_env=1, purpose=(Purpose.ATTACK,))
    under = replace(quiet, attacker=Composed(UniformTiming(2.0, 200), EqualDirection()), budget=2.0)
    lengths = {"quiet": play(quiet).lengths, "attacked": play(under).lengths}
    episode = 20 + int(np.argmin(lengths["attacked"][20:] - lengths["quiet"][20:]))
    assert 20 < episode < 39
    facts, arrays = recorded(tmp_path, quiet, under, episode=episode, returns=(200.0, 7.0))
    for name, each in lengths.items():
        assert len(arrays[f"{name}_clean"]) == each[episode] != each[20]
    assert np.array_equal(arrays["attacked_clean"][0], arrays["quiet_clean"][0])
    assert (
        np.abs(
            arrays["attacked_budget_used"] - 2 * np.sqrt(np.arange(1, len(arrays["attacked_clean"]) + 1) / 200)
        ).max()
        < 1e-5
    )
    said = replay_data(replace(FINISHED, tape=(facts, arrays)), "a")["about"]
    assert said[0] == (
        f"Episode {episode} of the run, in which the two differ most: the return is 200 without attack and 7 under "
        "attack."
    )


def test_two_agents_are_recorded_next_to_each_other(tmp_path):
    pair = {"A": plan(n_envs=10, n_episodes=10), "B": plan(n_envs=10, n_episodes=10, noise=Noise.of(0.0))}
    assert record_replay(pair, tmp_path, episode=3, returns=(200.0, 200.0)) is None
    tape = read_tape(tmp_path)
    found = replay_data(replace(FINISHED, tape=tape), "a")
    assert [panel["role"] for panel in found["panels"]] == ["A", "B"]
    assert [panel["truth"] is None for panel in found["panels"]] == [False, True]
    assert found["about"][0] == "Episode 3 of the run: the return is 200 of A and 200 of B."
    assert found["about"][1] == (
        "Noise with standard deviations 0.2 and 0 on every new observation of the one and the other."
    )
    a, b = (tape[1][f"{side}_clean"] for side in "AB")
    at = found["start"]
    assert at > 0
    assert np.array_equal(a[:at], b[:at])
    assert not np.array_equal(a[at], b[at])
    assert tape[1]["A_actions"][at] != tape[1]["B_actions"][at]


def test_an_attacked_run_records_the_episode_that_lost_most(tmp_path):
    grid = AttackGrid(base=plan(n_episodes=6), budgets=(0.5, 3.0), method="uniform")
    result, _ = attacked_run(grid, tmp_path, record=True)
    under, quiet = (Episodes.load(tmp_path / name / "episodes.npz") for name in ("B3", "unattacked"))
    facts, arrays = read_tape(tmp_path)
    lost = quiet.returns - under.returns
    assert lost.max() > np.median(lost)
    assert (facts["episode"], facts["tracks"]["attacked"]["budget"]) == (np.argmax(lost), 3.0)
    assert facts["returns"] == [quiet.returns[facts["episode"]], under.returns[facts["episode"]]]
    assert len(arrays["attacked_clean"]) == under.lengths[facts["episode"]]
    assert result["n_changed"][1][0] > 0
    assert f"Episode {facts['episode']} of the run" in (tmp_path / "report.html").read_text()


def test_the_same_plan_is_replayed_alike(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    one, two = (recorded(tmp_path / name, plan(), attacked_plan(plan(), 0.2))[1] for name in "ab")
    assert all(np.array_equal(one[key], two[key]) for key in one)


def test_pictures_are_kept_as_pictures(tmp_path, falling):
    quiet = Plan(task=falling, policy=as_policy(lambda _: 0, falling.spaces), noise=Noise.of(0.05), n_episodes=4)
    facts, arrays = recorded(tmp_path, quiet, attacked_plan(quiet, 0.1))
    assert arrays["quiet_clean"].shape == (20, 84, 84)
    assert arrays["quiet_clean"].dtype == np.uint8
    assert arrays["quiet_clean"][3, 12:16, 40:44].min() == 255
    spread = (arrays["quiet_seen"].astype(float) - arrays["quiet_clean"])[:, :, :40].std() / 255
    assert spread == pytest.approx(0.05, rel=0.1)
    assert facts["tracks"]["attacked"]["attacker"]["name"] == "composed"  # gradients of a plain function there are none
    assert arrays["attacked_budget_used"][-1] == pytest.approx(0.1 * (20 / 50) ** 0.5, rel=1e-4)


@pytest.mark.parametrize(("pictures", "most"), [(True, "MOST_PICTURES"), (False, "MOST_REPLAY_STEPS")])
def test_a_long_episode_is_cut_for_the_tape_alone(tmp_path, falling, monkeypatch, pictures, most):
    monkeypatch.setattr(replay, most, 7)
    quiet = (
        Plan(task=falling, policy=as_policy(lambda _: 0, falling.spaces), noise=Noise.of(0.05), n_episodes=4)
        if pictures
        else plan()
    )
    _, arrays = recorded(tmp_path, quiet)
    assert len(arrays["quiet_seen"]) == 7


def test_what_cannot_be_replayed_spoils_nothing(tmp_path):
    class Moody:
        calls = 0

        def __call__(self, observation):
            self.calls += 1
            if self.calls > 1_000:
                raise RuntimeError("no more\ntoday")
            return int(observation[2] > 0)

    task = get_task("cartpole-1")
    moody = Moody()
    moody.__name__ = "moody"
    quiet = Plan(task=task, policy=as_policy(moody, task.spaces), noise=Noise.of(0.2), n_episodes=10)
    moody.calls = -10_000  # enough for the certificate
    play(quiet)
    moody.calls = 1_000
    (tmp_path / "replay.npz").write_bytes(b"of an earlier run")
    assert record_replay({"quiet": quiet}, tmp_path) == "RuntimeError: no more today"
    assert not (tmp_path / "replay.npz").exists()


def test_an_agent_whose_replay_fails_still_gets_its_page(tmp_path, monkeypatch):
    def broken(*_):
        raise InputError("<b>no</b> picture")

    monkeypatch.setattr(replay, "_record_tape", broken)
    folder = tmp_path / "runs" / "this"  # among the runs of other tests an attack on the same agent might be replayed
    certified_run(plan(), Query(budgets=(0, 0.2)), folder, record=True, figure=False)
    assert json.loads((folder / "run.json").read_text())["replay"] == "InputError: <b>no</b> picture"
    assert "&lt;b&gt;no&lt;/b&gt; picture" in (folder / "report.html").read_text()
