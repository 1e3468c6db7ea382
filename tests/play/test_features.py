"""A sigma for each feature: the noise, the budget that goes with it, and what stays as it was when they are equal."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

import surefoot
from laws import too_many
from surefoot.agents import files as zoo
from surefoot.agents.policies import Policy, Spaces
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import read_json, write_json
from surefoot.noise import Noise
from surefoot.play.channel import Ledger, Rows, observation_channel
from surefoot.play.envs.noisy import NoisyObservation
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Stream
from surefoot.play.tasks import get_task
from surefoot.proof.query import Query, certify
from surefoot.runs.certified import certified_run, run_name
from surefoot.verification.verify import verify
from toys import Spy, echo, gate, geometric, pay_first_choice, plan_for, toy_task
from verdicts import problems

SIGMAS = (0.1, 0.2, 0.1, 0.4)


def test_equal_sigmas_are_one_sigma():
    assert Noise.of([0.2, 0.2]) == Noise.of(0.2) == Noise(0.2)
    assert Noise.of(SIGMAS) == Noise(0.1, SIGMAS)
    assert Noise.of(np.array(SIGMAS)) == Noise(0.1, SIGMAS)


@pytest.mark.parametrize("sigma", [[], [0.1, -0.1], [0.1, float("nan")], "ab", [[0.1], [0.2]]], ids=str)
def test_what_is_no_sigma_is_refused(sigma):
    with pytest.raises(InputError, match="sigma"):
        Noise.of(sigma)


# --- what is played -------------------------------------------------------------------------------------------------


def channel(sigma, adversary=None, budget=0.0, slots=20_000):
    streams = [Stream(seeds, torch.device("cpu")) for seeds in np.random.SeedSequence(3).spawn(2)]
    noise, ledger = Noise.of(sigma), None
    if adversary is not None:
        ledger = Ledger(
            attacker=adversary, budget=budget, policy=echo(4), stream=streams[1], n_envs=slots, shape=(4,), max_steps=1
        )
    return observation_channel(noise, slots, (4,), streams[0], ledger)


def test_each_feature_has_its_own_noise():
    """Kolmogorov-Smirnov at a false-alarm level of 1e-6 for each feature; the planted twin has its sigmas reversed."""
    noise = channel(SIGMAS).send(torch.zeros(20_000, 4)).numpy()
    for column, sigma in enumerate(SIGMAS):
        assert stats.kstest(noise[:, column] / sigma, "norm").pvalue > 1e-6
    assert stats.kstest(noise[:, 0] / SIGMAS[::-1][0], "norm").pvalue < 1e-6
    plain = channel(0.1).send(torch.zeros(20_000, 4)).numpy()
    assert noise == pytest.approx(plain * np.array(SIGMAS, dtype=np.float32) / np.float32(0.1), abs=1e-6)
    assert np.array_equal(channel([0.3] * 4).send(torch.zeros(20_000, 4)), channel(0.3).send(torch.zeros(20_000, 4)))


def record(slots):
    zero = torch.zeros(slots, dtype=torch.long)
    memory = torch.zeros(slots, 1, 4)
    seen = {"observation": torch.zeros(slots, 4), "state": None, "memory": memory, "action": None}
    return Rows(episode=zero, step=zero, episode_start=None, **seen)


@pytest.mark.parametrize(("feature", "allowed"), [(0, 0.5), (1, 1.0), (3, 2.0)])
def test_the_budget_is_measured_in_units_of_the_least_noise(feature, allowed):
    """Where there is four times the noise, an offset may be four times as large."""
    wish = torch.zeros(2, 4)
    wish[:, feature] = 10.0
    sent = channel(SIGMAS, Spy(lambda view: wish), 0.5, slots=2)
    offset = sent.ledger.admit_perturbation(torch.zeros(2, 4), record(2), sent)
    assert offset[:, feature].tolist() == pytest.approx([allowed, allowed], rel=1e-6)
    assert float(offset[0, feature]) <= allowed
    assert sent.ledger.budget_used.tolist() == pytest.approx([0.5, 0.5], rel=1e-6)
    assert sent.ledger.budget_left.max() < 1e-3


def test_there_must_be_one_sigma_per_feature():
    with pytest.raises(InputError, match="one for each of the 4 features, got 2"):
        channel((0.1, 0.2))
    with pytest.raises(InputError, match="one for each of the 4 features, got 2"):
        Plan(task=get_task("cartpole-1"), policy=zoo.load("cartpole-1-s0.2"), noise=Noise.of((0.1, 0.2)))
    with pytest.raises(InputError, match="sigma must be the least"):
        Noise(0.2, SIGMAS)


# --- what is certified ----------------------------------------------------------------------------------------------


def one_question(p, feature, sigmas):
    """A game of one step: won if the given coordinate of what is seen is at most its p-quantile (paper, Appendix A)."""
    task = toy_task(
        geometric(0.5, 1), pay_first_choice, clean=(0.0, 0.0), floor=0.0, ceiling=1.0, n_envs=500, episodes_per_env=1
    )
    inner = gate(p, sigmas[feature], 2)

    class Turned(torch.nn.Module):
        def forward(self, history):
            return inner.network(history.flip(-1) if feature else history)

    return task, Policy(Turned(), Spaces(shape=(2,), n_actions=2), name="turned", sha256="by-hand")


def attacked_mean(feature, sigmas, budget, unit):
    """Win rate under the attacker that spends all of its budget on the coordinate that counts."""
    task, policy = one_question(0.9, feature, sigmas)
    push = torch.zeros(1, 2)
    push[0, feature] = budget * unit
    plan = plan_for(
        task, policy, sigmas, 4_000, attacker=Spy(lambda view: push.expand_as(view.observation)), budget=budget
    )
    return float(play(plan).returns.mean())


@pytest.mark.parametrize("feature", [0, 1])
def test_the_attacker_of_the_theorem_attains_the_bound_on_every_feature(feature):
    """Win rate against Phi(Phi^-1(0.9) - B / least) at 5 standard errors; the twin measures offsets in plain l2."""
    sigmas, budget = (0.1, 0.3), 0.15
    worst = stats.norm.cdf(stats.norm.ppf(0.9) - budget / 0.1)
    error = 5 * np.sqrt(worst * (1 - worst) / 4_000)
    assert attacked_mean(feature, sigmas, budget, sigmas[feature] / 0.1) == pytest.approx(worst, abs=error)
    plain = attacked_mean(feature, sigmas, budget, 1.0)
    assert plain >= worst - error  # a plain l2 budget is covered
    assert (abs(plain - worst) < error) == (feature == 0)


def test_limits_hold_for_a_game_in_which_features_differ():
    """Misses of the certified limit under its own worst attacker; the twin claims the mean sigma for the least."""
    sigmas, budget, missed, planted = (0.1, 0.3), 0.15, 0, 0
    worst = stats.norm.cdf(stats.norm.ppf(0.9) - budget / 0.1)
    task, policy = one_question(0.9, 1, sigmas)
    everything = play(Plan(task=task, policy=policy, noise=Noise.of(sigmas), n_episodes=6_000, seed=2))
    everything = replace(everything, metadata={**everything.metadata, "n_planned": 100})
    for first in range(0, 6_000, 100):
        part = everything[first : first + 100]
        missed += certify(part, [budget], 0.8, "binary").lower[0] > worst
        planted += certify(replace(part, sigma=0.2), [budget], 0.8, "binary").lower[0] > worst
    assert not too_many(missed, 60, 0.2)
    assert too_many(planted, 60, 0.2)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same plan with equal and with different sigmas, certified."""
    folder = tmp_path_factory.mktemp("features")
    agent, task = zoo.load("cartpole-1-s0.2"), get_task("cartpole-1")
    plans = {
        "scalar": Plan(task=task, policy=agent, noise=Noise.of(0.1), n_episodes=60),
        "equal": Plan(task=task, policy=agent, noise=Noise.of([0.1] * 4), n_episodes=60),
        "different": Plan(task=task, policy=agent, noise=Noise.of(SIGMAS), n_episodes=60),
    }
    for name, plan in plans.items():
        certified_run(plan, Query(budgets=(0.0, 0.1), method="band"), folder / name, figure=False)
    return folder


def test_equal_sigmas_leave_everything_as_it_was(runs):
    for name in ("certificate.json", "setup.json", "episodes.npz"):
        assert (runs / "scalar" / name).read_bytes() == (runs / "equal" / name).read_bytes()
    assert "sigma_per_feature" not in read_json(runs / "scalar" / "setup.json")
    scalar, equal = ([0.5, 1.0], 0.1), ([0.5, 1.0], [0.1, 0.1])
    made = [Episodes.from_returns(x, sigma=sigma, floor=0, ceiling=1) for x, sigma in (scalar, equal)]
    assert made[0].sha256 == made[1].sha256


def test_different_sigmas_are_another_run_and_say_so(runs):
    made = read_json(runs / "different" / "certificate.json")
    assert (made["sigma"], made["sigma_per_feature"]) == (0.1, list(SIGMAS))
    assert "noise sigma 0.1, 0.2, 0.1, 0.4 by feature; perturbations are divided by sigma / 0.1" in made["statement"]
    assert "a plain norm of the budget is covered too" in made["statement"]
    assert read_json(runs / "different" / "setup.json")["sigma_per_feature"] == list(SIGMAS)
    episodes = Episodes.load(runs / "different" / "episodes.npz")
    assert episodes.metadata["sigma_per_feature"] == list(SIGMAS)
    assert not np.array_equal(episodes.returns, Episodes.load(runs / "scalar" / "episodes.npz").returns)
    with pytest.raises(InputError, match="differ in sigma_per_feature"):
        Episodes.concat([episodes, Episodes.load(runs / "scalar" / "episodes.npz")])
    plan = Plan(task=get_task("cartpole-1"), policy=zoo.load("cartpole-1-s0.2"), noise=Noise.of(SIGMAS), n_episodes=60)
    assert "sigma0.1_0.2_0.1_0.4-" in run_name(plan)


def test_it_is_verified_and_tampering_with_a_sigma_is_caught(runs, tmp_path):
    assert verify(runs / "different", blocks=None, fresh=8).verified
    copy = shutil.copytree(runs / "different", tmp_path / "run")
    made = read_json(copy / "certificate.json")
    for change in ({"sigma_per_feature": [0.1, 0.2, 0.1, 0.8]}, {"sigma": 0.2}, {"sigma_per_feature": None}):
        write_json(copy / "certificate.json", {**made, **change})
        assert "certificate and episode data" in problems(verify(copy, blocks=0))
    forged(copy, sigma_per_feature=[0.1, 0.2, 0.2, 0.4])
    assert set(problems(verify(copy, blocks=None, fresh=8))) == {"replay"}
    forged(copy, sigma=0.4)  # as if the largest sigma were the unit: twice the budget is claimed for the same returns
    assert "certificate and episode data" in problems(verify(copy, blocks=0))


def forged(folder, **changes):
    """Change the setup and regenerate everything else."""
    there = Episodes.load(folder / "episodes.npz")
    setup = {**there.setup, **changes}
    limits = {key: setup.pop(key) for key in ("sigma", "floor", "ceiling")}
    made = Episodes(there.returns.copy(), lengths=there.lengths.copy(), metadata=setup, **limits)
    made.save(folder / "episodes.npz")
    write_json(folder / "certificate.json", certify(made, [0.0, 0.1], method="band").to_json())
    write_json(folder / "setup.json", {"schema": 1, **made.setup})


def test_a_record_that_contradicts_itself_is_not_read(runs, tmp_path):
    there = Episodes.load(runs / "different" / "episodes.npz")
    replace(there, sigma=0.2).save(tmp_path / "forged.npz")
    with pytest.raises(InputError, match=r"has sigma 0\.2, but sigma_per_feature"):
        Episodes.load(tmp_path / "forged.npz")


# --- the command, the deployed agent, training ----------------------------------------------------------------------


def test_the_command_takes_one_sigma_or_several(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["certify", "cartpole-1", "--agent", "cartpole-1-s0.2", "--episodes", "40", "--workers", "1", "--quiet"]
    assert cli.main([*asked, "--sigma", "0.1,0.2,0.1,0.4", "--budgets", "0,0.1"]) == 0
    shown = capsys.readouterr().out
    assert "sigma 0.1, 0.2, 0.1, 0.4 by feature" in shown
    (folder,) = (tmp_path / "runs").iterdir()
    assert verify(folder, blocks=1, fresh=8).verified
    assert "sigma of each feature" in (folder / "report.html").read_text()
    for sigma, expected in (("0.1,0.2", "one for each of the 4 features, got 2"), ("0.1,x", "--sigma: must look like")):
        assert cli.main([*asked, "--sigma", sigma]) == 2
        assert expected in capsys.readouterr().err
    assert cli.main(["certify", "cartpole-1", "--sigma", "0.1,0.2,0.1,0.4"]) == 2
    assert "name one with --agent" in capsys.readouterr().err
    np.save("r.npy", np.ones(30))
    given = ["certify", "--returns", "r.npy", "--floor", "0", "--ceiling", "2", "--json"]
    assert cli.main([*given, "--sigma", "0.2,0.1"]) == 0
    assert json.loads(capsys.readouterr().out)["sigma_per_feature"] == [0.2, 0.1]


def test_the_deployed_agent_adds_the_noise_that_was_certified():
    with pytest.warns(surefoot.PredictableNoiseWarning):
        one, other = (surefoot.smooth(echo(4), sigma, seed=5) for sigma in (1.0, SIGMAS))
    zero = np.zeros((50, 4), dtype=np.float32)
    assert other.predict(zero)[0] == pytest.approx(one.predict(zero)[0] * np.array(SIGMAS, dtype=np.float32))
    assert "sigma=(0.1, 0.2, 0.1, 0.4)" in repr(other)
    with pytest.raises(InputError, match="one for each of the 4 features, got 2"):
        surefoot.smooth(echo(4), (0.1, 0.2))
    assert "sigma=0.3," in repr(surefoot.smooth(echo(4), [0.3] * 4))


def test_training_may_use_the_same_noise():
    import gymnasium

    one, other = (NoisyObservation(gymnasium.make("CartPole-v1"), sigma, seed=1) for sigma in (1.0, SIGMAS))
    one_seen, other_seen = (env.reset(seed=2)[0] for env in (one, other))
    clean = gymnasium.make("CartPole-v1").reset(seed=2)[0]
    assert other_seen - clean == pytest.approx((one_seen - clean) * np.array(SIGMAS), abs=1e-5)


@pytest.mark.parametrize("sigmas", [[0.2, 2e37], [2e37, 0.2], [0.2, 0.5e-37], [0.0, 2e37]])
def test_every_sigma_is_one_that_single_precision_has(sigmas):
    """Not the least alone: infinite noise on the other features would be none that bounds are computed with."""
    with pytest.raises(InputError, match="in single precision the noise would vanish, or be infinite"):
        Noise.of(sigmas).over((2,))
    assert Noise.of([0.0, 1e37]).over((2,)).tolist()[0] == 0.0
