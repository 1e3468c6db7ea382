"""What is given of each agent reaches that agent, and episodes that prove nothing of B's worst case are refused."""

import inspect
from dataclasses import replace

import pytest

import surefoot
from surefoot.api import compared_agents
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.task import Blocks
from surefoot.proof.difference import pair_up
from surefoot.runs.compared import made_up
from toys import balancer, short_pole


class StoppedError(Exception):
    pass


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [(0.2, None), (0.8, None)]),
        ({"sigma": 0.3}, [(0.3, None), (0.8, None)]),
        ({"sigma_b": 0.0}, [(0.2, None), (0.0, None)]),
        # Who asks for noise on actions gets that alone, as from certify.
        ({"action_sigma": 0.3}, [(Noise.of(0.0, 0.3), None)] * 2),
        ({"action_sigma": 0.3, "action_sigma_b": 0.0}, [(Noise.of(0.0, 0.3), None), (0.0, None)]),
        ({"sigma": 0.1, "action_sigma": 0.3}, [(Noise.of(0.1, 0.3), None)] * 2),
        ({"vecnormalize": "a.pkl"}, [(0.2, "a.pkl"), (0.8, None)]),
        ({"vecnormalize_b": "b.pkl"}, [(0.2, None), (0.8, "b.pkl")]),
    ],
)
def test_noise_and_statistics_are_those_of_each_agent(given, expected, monkeypatch):
    """By default an agent has the noise that its own model card names."""
    planned = []

    def plan(agent, task, noise, options, vecnormalize):
        planned.append((noise, vecnormalize))
        if len(planned) == 2:
            raise StoppedError

    monkeypatch.setattr(compared_agents, "_plan_agent", plan)
    with pytest.raises(StoppedError):
        surefoot.compare("cartpole-1-s0.2", "cartpole-1-s0.8", **given)
    for (noise, statistics), (wanted, of_agent) in zip(planned, expected, strict=True):
        assert noise == (wanted if isinstance(wanted, Noise) else Noise.of(wanted))
        assert statistics == of_agent


def test_under_attack_noise_on_actions_is_what_budgets_are_divided_by():
    """Episodes of an agent with noise on actions prove what those with that noise on observations would."""
    rows = {}
    b = surefoot.Episodes.from_returns([0.1, 0.0] * 20, sigma=0.0, floor=0, ceiling=1)
    for channel, noise in {"obs": {"sigma": 0.4}, "act": {"sigma": 0.0, "action_sigma": 0.4}}.items():
        a = surefoot.Episodes.from_returns([0.9, 1.0] * 20, floor=0, ceiling=1, **noise)
        comparison = surefoot.compare(a, b, budgets=[0.1])
        rows[channel] = comparison.attacked
        assert ("any action attack" in str(comparison)) == (channel == "act")
    assert rows["obs"] == rows["act"]
    loud = surefoot.Episodes.from_returns([0.9, 1.0] * 20, sigma=0.4, action_sigma=0.4, floor=0, ceiling=1)
    # With noise on both a budget counts standard deviations.
    assert surefoot.compare(loud, b, budgets=[0.25]).attacked[0].lower == rows["obs"][0].lower


def test_an_attack_on_b_is_refused_where_its_budget_would_be_of_actions():
    with pytest.raises(InputError, match="attack= on B perturbs observations; with noise on actions"):
        surefoot.compare("cartpole-1-s0.2", "cartpole-1-s0.8", budgets=[0.1], attack="random", action_sigma=0.1)


def test_attacked_episodes_of_b_bound_its_worst_case_at_no_other_budget():
    """Attacked with a larger budget than is asked for, B would look worse than any allowed attack makes it."""
    known = {"sigma": 0.2, "floor": 0, "ceiling": 1}
    a = surefoot.Episodes.from_returns([0.5, 0.4] * 20, **known)
    b = surefoot.Episodes.from_returns([0.1, 0.0] * 20, **known, attacker={"name": "random"}, budget=5.0)
    assert surefoot.compare(a, b).attacked == ()
    with pytest.raises(InputError, match="B's episodes were attacked"):
        surefoot.compare(a, b, budgets=[0.1])


# What a comparison of episodes uses; workers change no result.
OF_EPISODES = {"a", "b", "budgets", "better", "margin", "confidence", "floor", "ceiling", "only_wins", "out"}
OF_EPISODES |= {"device", "workers", "progress_callback", "command"}


@pytest.mark.parametrize("name", sorted(set(inspect.signature(surefoot.compare).parameters) - OF_EPISODES))
def test_an_argument_that_would_be_ignored_is_refused(name):
    """Given and ignored, it would seem to be what the comparison is about."""
    known = {"sigma": 0.2, "floor": 0, "ceiling": 1}
    a, b = (surefoot.Episodes.from_returns(returns, **known) for returns in ([0.5, 0.4] * 20, [0.1, 0.0] * 20))
    given = 0 if name in ("sigma", "sigma_b", "seed") else 7
    with pytest.raises(InputError, match=f"^{name}= cannot be combined with episodes: none are run"):
        surefoot.compare(a, b, **{name: given})


@pytest.mark.parametrize("given", [{"floor": 0}, {"ceiling": 200}, {"only_wins": True}])
def test_limits_of_agents_are_those_of_their_task(given):
    with pytest.raises(InputError, match="are for files of returns; a task knows its own"):
        surefoot.compare("cartpole-1-s0.2", "cartpole-1-s0.8", **given)


@pytest.mark.parametrize("place", [".", "A"])
def test_episodes_of_others_are_not_written_over_those_of_a_run(place, tmp_path):
    """In a run, or in a comparison of agents, whose sides are runs."""
    known = {"sigma": 0.2, "floor": 0, "ceiling": 1}
    a, b = (surefoot.Episodes.from_returns(returns, **known) for returns in ([0.5, 0.4] * 20, [0.1, 0.0] * 20))
    (tmp_path / "run" / place).mkdir(parents=True)
    (tmp_path / "run" / place / "setup.json").write_text("{}")
    with pytest.raises(InputError, match="run holds a run of its own; choose another out="):
        surefoot.compare(a, b, out=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").rglob("*") if path.is_file()] == ["setup.json"]
    written = surefoot.compare(a, b, out=tmp_path / "other").directory
    for side, episodes in (("A", a), ("B", b)):
        assert surefoot.Episodes.load(written / side / "episodes.npz").sha256 == episodes.sha256


def test_each_return_of_a_table_of_pairs_is_under_its_own_agent(tmp_path):
    known = {"sigma": 0.2, "floor": 0, "ceiling": 9}
    a = surefoot.Episodes.from_returns([1.0, 2.0, 3.0], **known, episode_seeds=[7, 8, 9])
    b = surefoot.Episodes.from_returns([6.0, 5.0, 4.0], **known, episode_seeds=[9, 8, 7])
    surefoot.compare(a, b, out=tmp_path / "run")
    heads, *rows = (tmp_path / "run" / "episodes.csv").read_text().splitlines()
    assert heads == "episode,seed,return_a,return_b"
    assert sorted(rows) == ["7,7,1.0,4.0", "8,8,2.0,5.0", "9,9,3.0,6.0"]


def test_both_agents_run_one_episode_for_each_environment_of_a_block():
    """With several in turn episodes could not be paired, and the interval would be much longer."""
    task = replace(short_pole(10), blocks=Blocks(n_envs=6, episodes_per_env=3))
    a, b = (Plan(task=task, policy=balancer(), noise=Noise.of(sigma), n_episodes=12) for sigma in (0.1, 0.2))
    assert a.block_size == 18
    for fewer in ({}, {"n_envs": 4}):
        plans = compared_agents._on_same_seeds(a, replace(b, **fewer), None)
        assert {plan.block_size for plan in plans.values()} == {plan.block_envs for plan in plans.values()}
        assert len({plan.block_size for plan in plans.values()}) == 1
        assert pair_up(*map(made_up, plans.values())).pairing == "seeds"


@pytest.mark.parametrize("draws", ["A", "B"])
def test_agents_that_draw_their_actions_get_seeds_of_their_own(draws):
    plans = {}
    for side in "AB":
        policy = replace(balancer(), stochastic=side == draws)
        plans[side] = Plan(task=short_pole(10), policy=policy, noise=Noise.of(0.1), n_episodes=4)
    made = compared_agents._on_same_seeds(plans["A"], plans["B"], 7)
    assert (made["A"].seed, made["B"].seed) == (7, 8)
    assert pair_up(*map(made_up, made.values())).pairing == "independent"
