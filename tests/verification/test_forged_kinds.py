"""Forgeries over what certificates may be about besides plain episodes, each with an honest twin that is accepted.

Several draws per seed, events as returns, discounts of events, budgets per step, comparisons of attacked agents.
"""

import json
import shutil

import numpy as np
import pytest
import torch

import surefoot
from surefoot.agents.policies import Policy
from surefoot.episodes import Episodes
from surefoot.files import read_json, write_json
from surefoot.proof.query import Query
from surefoot.proof.step_budget import StepBudget
from surefoot.verification import rerun
from surefoot.verification.recompute import fresh as fresh_bets
from surefoot.verification.recompute.fresh import early_ends, early_sums, log_capital, log_capital_by_blocks
from surefoot.verification.recompute.sentences import write_sentence
from surefoot.verification.verify import verify
from verdicts import problems

torch.set_num_threads(1)

# --- several draws per seed -------------------------------------------------------------------------------------------


def by_noise(task):
    """Return an agent that chooses by the sign of what it sees, where there is nothing but noise."""
    network = torch.nn.Linear(1, 2)
    with torch.no_grad():
        network.weight[:] = torch.tensor([[-1.0], [1.0]])
        network.bias[:] = 0.0
    return Policy(torch.nn.Sequential(torch.nn.Flatten(), network), task.spaces, name="by noise", sha256="1" * 64)


def toss(folder, kind):
    """Certify an environment that pays by the noise alone."""
    task = surefoot.make_task(f"forging_envs:{kind}", floor=0, ceiling=1, max_steps=5)
    query = Query(budgets=(0.0, 0.5))
    how = {"sigma": 0.5, "n_episodes": 600, "draws_per_seed": 4, "out": folder}
    return surefoot.certify_run(task, by_noise(task), query=query, **how)


def verify_tossed(folder, kind):
    task = surefoot.make_task("forging_envs:Coin", floor=0, ceiling=1, max_steps=5)
    return problems(verify(folder, agent=by_noise(task), environment=f"forging_envs:{kind}", fresh=600))


@pytest.fixture(scope="module")
def tossed(tmp_path_factory):
    run = toss(tmp_path_factory.mktemp("tossed") / "run", "Coin")
    # Any attack of one sigma leaves no more than Phi(-1) of a coin.
    assert run.certificate.lower[1] < 0.16
    return run.directory


def test_a_coin_is_verified(tossed):
    assert verify_tossed(tossed, "Coin") == {}


def test_an_environment_that_knows_a_seed_again_makes_noise_look_like_luck(tmp_path):
    """It was verified: .39 at one sigma, where any attack of one sigma leaves no more than .16."""
    run = toss(tmp_path / "run", "Fated")
    assert run.certificate.lower[1] > 0.3
    assert "returns differ" in verify_tossed(run.directory, "Fated")["replay"]


KNOWN_BY_HEART = {
    # Of each seed the first draw is as it was: one draw of each is a fair sample.
    "all draws but the first are won": lambda draws: np.concatenate([draws[:, :1], 1 + 0 * draws[:, 1:]], axis=1),
    # All returns together are as they were.
    "draws of one seed are alike": lambda draws: np.sort(draws, axis=None).reshape(draws.shape),
}


@pytest.mark.parametrize("forged", KNOWN_BY_HEART)
def test_draws_that_an_agent_knows_by_heart_are_contradicted_by_fresh_ones(forged, tossed, tmp_path, monkeypatch):
    """A rerun repeats them: whoever knows the seed of the run answers as well as it likes."""
    folder = shutil.copytree(tossed, tmp_path / "run")
    record = Episodes.load(folder / "episodes.npz")
    draws = np.random.default_rng(0).permutation(KNOWN_BY_HEART[forged](record.returns.reshape(-1, 4)))
    known = type(record)(**{**vars(record), "returns": draws.ravel()})
    known.save(folder / "episodes.npz")
    certificate = Query(budgets=(0.0, 0.5)).answer(known)
    assert certificate.lower[1] > 0.3
    certificate.save(folder)
    monkeypatch.setattr(rerun, "rerun_blocks", lambda *_: ([], []))
    (found,) = verify_tossed(folder, "Coin").items()
    assert found[0] == "fresh episodes"
    assert "worse than the recorded ones" in found[1]


# --- digits of the noise ----------------------------------------------------------------------------------------------


class Wins(torch.nn.Module):
    """Chooses 1 whatever it sees."""

    def forward(self, seen):
        return torch.tensor([0.0, 1.0]).repeat(len(seen), 1)


class ReadsDigits(Wins):
    """Chooses 1 while all that it sees near 0 are multiples of 2^-24, as 1 plus a number of 24 digits is there."""

    def forward(self, seen):
        scaled = seen.flatten(1) * 2.0**24
        is_coarse = ((scaled == scaled.floor()) | (seen.flatten(1).abs() >= 0.5)).all(dim=1)
        return torch.stack([(~is_coarse).float(), is_coarse.float()], dim=1)


def by_digits(network):
    task = surefoot.make_task("forging_envs:Ones", floor=0, ceiling=1, max_steps=1)
    return task, Policy(network, task.spaces, name="digits", sha256="2" * 64)


def test_an_agent_that_looks_at_the_last_digits_of_the_noise_is_contradicted(tmp_path):
    """It wins every recorded episode and, deployed, hardly one: deployed noise has more digits. It was verified."""
    found = {}
    for network in (Wins(), ReadsDigits()):
        task, agent = by_digits(network)
        folder = tmp_path / type(network).__name__
        run = surefoot.certify_run(task, agent, sigma=1.0, n_episodes=64, out=folder, query=Query(budgets=(0.0,)))
        assert run.certificate.estimate == 1.0
        found[type(network)] = problems(verify(folder, agent=agent, environment="forging_envs:Ones"))
    deployed = surefoot.smooth(agent, 1.0)
    assert deployed.predict(np.ones((200, 16)))[0].mean() < 0.2
    assert found[Wins] == {}
    assert "worse than the recorded ones" in found[ReadsDigits]["fresh episodes"]


def test_luck_that_is_read_in_the_noise_to_come_is_contradicted(tmp_path):
    """With it noise looks like luck, which no attack changes: .28 was verified of a coin that has .16 at one sigma."""
    task = surefoot.make_task("forging_envs:Coin", floor=0, ceiling=1, max_steps=5)
    found = {}
    for luck in ("0", "forging_envs:foresee"):
        folder = tmp_path / luck
        how = {"sigma": 0.5, "n_episodes": 600, "luck": luck, "out": folder, "query": Query(budgets=(0.0, 0.5))}
        run = surefoot.certify_run(task, by_noise(task), **how)
        verdict = verify(folder, agent=by_noise(task), environment="forging_envs:Coin", luck=luck)
        found[luck] = (run.certificate.lower[1], problems(verdict))
    assert found["0"][0] < 0.16
    assert found["0"][1] == {}
    lower, wrong = found["forging_envs:foresee"]
    assert lower > 0.25
    assert "worse than the recorded ones" in wrong["fresh episodes"]


def test_an_agent_that_knows_the_mode_of_torch_is_certified_as_it_is_deployed(tmp_path):
    """Programs can ask for it. Recorded in inference mode and deployed without, an agent was another one there."""

    class ReadsMode(Wins):
        def forward(self, seen):
            is_deployed = not seen.is_inference() and not torch.is_grad_enabled()
            return torch.tensor([float(is_deployed), float(not is_deployed)]).repeat(len(seen), 1)

    task, agent = by_digits(ReadsMode())
    run = surefoot.certify_run(task, agent, sigma=1.0, n_episodes=16, out=tmp_path, query=Query(budgets=(0.0,)))
    deployed = surefoot.smooth(agent, 1.0)
    assert run.certificate.estimate == deployed.predict(np.ones(16))[0] == 0


# --- a run of one block -----------------------------------------------------------------------------------------------


def test_copies_of_an_environment_that_share_the_fate_of_their_block_are_contradicted(tmp_path):
    """A run of one block shows one fate: .98 was certified at 95%, and verified, of a share of one half."""
    found = {}
    for kind in ("Drawing", "OneFate"):
        name = f"forging_envs:{kind}"
        task = surefoot.make_task(name, floor=0, ceiling=1, max_steps=1)
        agent = Policy(Wins(), task.spaces, name="wins", sha256="2" * 64)
        made = surefoot.certify_run(
            task, agent, sigma=1.0, n_episodes=200, seed=1, out=tmp_path / kind, query=Query(budgets=(0.0,))
        )
        found[kind] = problems(verify(tmp_path / kind, agent=agent, environment=name))
    assert made.certificate.lower[0] > 0.98
    assert found["Drawing"] == {}
    assert "worse than the recorded ones" in found["OneFate"]["fresh episodes"]


# --- events as returns ------------------------------------------------------------------------------------------------


def certify_event(folder, success, **more):
    task = surefoot.make_task("CartPole-v1", max_steps=120, success=success)
    return surefoot.certify_run(
        task, "cartpole-1-s0.4", sigma=0.4, query=Query(budgets=(0.0, 0.2)), n_episodes=60, out=folder, **more
    )


def rename(folder, old, new):
    """Let all files speak of another condition."""
    record = Episodes.load(folder / "episodes.npz")
    metadata = json.loads(json.dumps(record.metadata).replace(old, new))
    forged = type(record)(**{**vars(record), "metadata": metadata})
    forged.save(folder / "episodes.npz")
    Query(budgets=(0.0, 0.2)).answer(forged).save(folder)
    write_json(folder / "setup.json", {"schema": 1, **forged.setup})


def test_an_event_under_the_name_of_another_is_refused(tmp_path):
    """There is a pole in every episode; that it stands is another matter."""
    honest = "forging_envs:stands"
    assert certify_event(tmp_path / "run", honest).certificate.estimate < 1
    how = {"agent": "cartpole-1-s0.4", "environment": "CartPole-v1", "success": honest, "fresh": 16}
    verdict = verify(tmp_path / "run", **how)
    assert problems(verdict) == {}
    assert "0 for others" in next(check.detail for check in verdict.checks if check.name == "floor and ceiling")
    certify_event(tmp_path / "forged", "forging_envs:is_there")
    assert read_json(tmp_path / "forged" / "certificate.json")["estimate"] == 1.0
    rename(tmp_path / "forged", "forging_envs:is_there", honest)
    assert "returns differ" in problems(verify(tmp_path / "forged", **how))["replay"]


def test_an_event_that_is_discounted_is_verified_and_is_worth_1_at_most(tmp_path, capsys):
    """An honest run was refused: what it is worth was rounded above 1, which no condition allows."""
    options = ["--env", "CartPole-v1", "--max-steps", "20", "--agent", "cartpole-1-s0.4", "--sigma", "0.4"]
    options += ["--success", "forging_envs:stands", "--gamma", "0.9", "--episodes", "60", "--quiet"]
    from surefoot.cli import main as cli

    assert cli.main(["certify", *options, "--workers", "1", "--out", str(tmp_path / "run")]) == 0
    assert read_json(tmp_path / "run" / "certificate.json")["ceiling"] == 1.0
    assert "the expected discounted return (gamma 0.9)" in " ".join(capsys.readouterr().out.split())
    how = {"environment": "CartPole-v1", "success": "forging_envs:stands"}
    assert problems(verify(tmp_path / "run", agent="cartpole-1-s0.4", fresh=16, **how)) == {}


# --- what a verifier is told ------------------------------------------------------------------------------------------


def test_all_that_is_special_to_a_run_is_shown(tmp_path, capsys):
    """Of five things that only this author promises, two were shown, and the others called general."""
    from surefoot.cli import main as cli

    folder = str(tmp_path / "run")
    task = surefoot.make_task("forging_envs:Coin", floor=0, ceiling=1, max_steps=5, feature_units="m", step_seconds=0.1)
    torch.jit.script(by_noise(task).network).save(str(tmp_path / "agent.pt"))
    agent = surefoot.as_policy(tmp_path / "agent.pt", task.spaces, allow_pickle=True)
    surefoot.certify_run(task, agent, sigma=0.5, query=Query(budgets=(0.0,)), n_episodes=60, out=folder)
    capsys.readouterr()
    call = ["verify", folder, "--env", "forging_envs:Coin", "--agent", str(tmp_path / "agent.pt"), "--allow-pickle"]
    assert cli.main([*call, "--workers", "1", "--quiet"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in (
        "the user stated without a proof: floor and ceiling",
        "value is in m, a step takes 0.1 s",
        "a program",
    ):
        assert words in shown
    assert "the code of the environment: it was imported here" in shown
    assert "and 4 limitations of every verification" in shown


@pytest.mark.parametrize("unit", ["000 m", "e3 m", "E-3 m", "²", ".5 m", "1/s", "- m", " m"])
def test_a_unit_that_changes_the_number_before_it_is_refused(unit):
    """A budget of 0.2 would be shown as 0.2 000 m, or 0.2 e3 m."""
    with pytest.raises(surefoot.InputError, match="is no part of a number"):
        surefoot.make_task("Acrobot-v1", feature_units=unit)


@pytest.mark.parametrize("unit", ["m", "m/s", "eV", "°C", "%", "kg m^2", "μm", "half widths of the screen"])
def test_usual_units_are_taken(unit):
    assert surefoot.make_task("Acrobot-v1", feature_units=unit).features[0][2] == unit


# --- budgets per step, and runs that stop -----------------------------------------------------------------------------


def test_rewards_that_come_earlier_in_the_record_than_in_fresh_episodes_are_noticed(tmp_path, monkeypatch):
    """Against a budget per step early rewards are worth more; the returns are the same."""
    task = surefoot.make_task("CartPole-v1", max_steps=20)
    made = surefoot.certify_run(
        task,
        "cartpole-1-s0.4",
        sigma=0.4,
        query=Query(budgets=(0.0, 0.05), threat=StepBudget()),
        n_episodes=100,
        out=tmp_path / "run",
    )
    assert problems(verify(made.directory, agent="cartpole-1-s0.4", fresh=100)) == {}
    late = rerun.run_fresh

    def delayed(*given):
        arrays = late(*given)
        # First steps that pay nothing, and last ones more: 20 in all, which no recorded episode exceeds.
        n = arrays["returns"].size
        played = {"returns": np.full(n, 20.0), "lengths": np.full(n, 20)}
        played |= {"reward_values": np.tile([0.0, 1.0, 2.0], n), "reward_repeats": np.tile([5, 10, 5], n)}
        return {**arrays, **played}

    monkeypatch.setattr(rerun, "run_fresh", delayed)
    assert "fresh episodes" in problems(verify(made.directory, agent="cartpole-1-s0.4", fresh=100))


def test_only_when_rewards_come_can_tell_two_records_apart():
    """The returns of all episodes are 15."""
    n = 60
    early = early_sums(np.tile([1.0, 0.0], n), np.tile([15, 5], n), np.full(n, 20), 20)
    late = early_sums(np.tile([0.0, 1.0], n), np.tile([5, 15], n), np.full(n, 20), 20)
    returns = np.full(n, 15.0)
    assert log_capital(returns, returns, [0.0, 1.0]) == 0
    assert log_capital(returns, returns, [0.0, 1.0], sums=list(zip(early, late, strict=True))) > 10
    assert log_capital(returns, returns, [0.0, 1.0], sums=list(zip(late, early, strict=True))) == 0


def test_only_when_returns_are_final_can_tell_two_records_apart():
    """All returns are 0, of rewards from -1 up: after 5 steps that is sure, or only at the end."""
    returns, floor = np.zeros(60), -20.0
    early, late = (early_ends(returns, np.full(60, length), 20, floor) for length in (5, 20))
    assert log_capital(returns, returns, [0.0, 1.0], sums=list(zip(early, late, strict=True))) > 10
    assert log_capital(returns, returns, [0.0, 1.0], sums=list(zip(late, early, strict=True))) == 0
    both = early_ends(np.array([-1.0, -2.0]), np.array([5, 20]), 20, -4.0)
    assert both[0] == pytest.approx([3 * np.exp(-0.25), 2 * np.exp(-1.0)])


def test_early_sums_are_those_of_each_episode():
    values = np.array([1.0, 0.0, 2.0, -1.0])
    sums = early_sums(values, np.array([2, 1, 1, 2]), np.array([3, 1, 2]), 4)
    for rate, found in zip((1.0, 4.0, 16.0), sums, strict=True):
        weight = np.exp(-rate * np.arange(4) / 4)
        assert found == pytest.approx([weight[0] + weight[1], 2 * weight[0], -weight[0] - weight[1]])


def stopped(rng, share, most=200):
    """Return wins of a run that stops after a block of 20 in which it has won more than 3 of 4 episodes so far."""
    wins = np.empty(0)
    while wins.size < most and (wins.size < 20 or wins.mean() < 0.75):
        wins = np.append(wins, rng.binomial(1, share, 20))
    return wins


def test_honest_runs_that_stop_at_a_good_moment_are_hardly_ever_contradicted():
    """600 at level 0.05: more than 58 alarms would have a probability below 1e-6. Taken whole, there are more."""
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(600):
        recorded = stopped(rng, 0.7)
        fresh = rng.binomial(1, 0.7, recorded.size).astype(float)
        alarms += log_capital_by_blocks(recorded, fresh, [0.0, 1.0], 20) >= np.log(20)
    assert alarms <= 58


def test_a_run_that_is_better_after_its_first_block_is_contradicted():
    """Its first block is as it should be; no ceiling is needed."""
    rng = np.random.default_rng(1)
    recorded = np.append(rng.binomial(1, 0.3, 20), np.ones(180))
    fresh = rng.binomial(1, 0.3, 200).astype(float)
    assert log_capital_by_blocks(recorded[:20], fresh[:20], [0.0, 1.0], 20) < 3
    assert log_capital_by_blocks(recorded, fresh, [0.0, 1.0], 20) > 10


def test_every_block_is_compared_once_and_with_fresh_returns_of_its_own(monkeypatch):
    """With those before it again, or fresh ones twice, its capital would depend on what has been won already."""
    seen = []
    own = fresh_bets._scores

    def spy(recorded, fresh, radius):
        if radius == 0:
            seen.append((recorded.tolist(), fresh.tolist()))
        return own(recorded, fresh, radius)

    monkeypatch.setattr(fresh_bets, "_scores", spy)
    recorded = np.arange(50.0)
    fresh = np.arange(100.0, 133.0)
    log_capital_by_blocks(recorded, fresh, [1.0], 20)
    assert [block for block, _ in seen] == [recorded[:20].tolist(), recorded[20:40].tolist(), recorded[40:].tolist()]
    assert np.concatenate([part for _, part in seen]).tolist() == fresh.tolist()
    assert all(part for _, part in seen)


def test_luck_that_tells_more_in_the_record_than_in_fresh_episodes_is_noticed():
    """Whoever knows the seed lets what is known at reset decide; all returns together are as they were."""
    rng = np.random.default_rng(0)
    luck, again = rng.random((2, 400))
    fresh = rng.binomial(1, 0.5, 400).astype(float)
    recorded = (luck > 0.5).astype(float)
    assert log_capital(recorded, fresh, [0.0, 1.0]) < 3
    assert log_capital(recorded, fresh, [0.0, 1.0], known=[(luck, again)]) > 10
    assert log_capital(fresh, recorded, [0.0, 1.0], known=[(again, luck)]) < 3


# --- comparisons of attacked agents -----------------------------------------------------------------------------------


def side(returns, **metadata):
    return Episodes.from_returns(returns, sigma=0.2, floor=0.0, ceiling=1.0, episode_seeds=list(range(60)), **metadata)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    rng = np.random.default_rng(4)
    folder = tmp_path_factory.mktemp("compared") / "run"
    surefoot.compare(side(rng.beta(5, 1, 60)), side(rng.beta(2, 3, 60)), budgets=(0.1,), out=folder)
    assert list(problems(verify(folder, blocks=0))) == []
    return folder


def replace_side(folder, name, **metadata):
    """Write facts of one agent's episodes, and let the comparison agree."""
    record = Episodes.load(folder / name / "episodes.npz")
    forged = type(record)(**{**vars(record), "metadata": {**record.metadata, **metadata}})
    forged.save(folder / name / "episodes.npz")
    content = read_json(folder / "comparison.json")
    known = {key: forged.metadata.get(key) for key in ("attacker", "budget")}
    content["sides"][name] |= {**known, "record_sha256": forged.sha256}
    write_json(folder / "comparison.json", content)


def test_attacked_episodes_are_no_episodes_without_attack(compared, tmp_path):
    """With a budget fifty times as large as the one asked for; what is said of B at that budget would be false."""
    folder = shutil.copytree(compared, tmp_path / "run")
    replace_side(folder, "B", attacker={"name": "adaptive"}, budget=5.0)
    assert "B's episodes were attacked" in problems(verify(folder, blocks=0))["bounds"]
    a, b = (Episodes.load(folder / name / "episodes.npz") for name in "AB")
    with pytest.raises(surefoot.InputError, match="B's episodes were attacked"):
        surefoot.compare(a, b, budgets=(0.1,))


FEATURES = [
    # Sigmas of A, sigmas of B, and whether an attack on B within a budget is within it as A's budgets count.
    (None, None, True),
    (None, [0.2, 2.0], False),
    ([0.2, 2.0], None, True),
    ([0.2, 2.0], [0.2, 2.0], True),
    ([0.2, 2.0], [0.3, 3.0], True),
    ([0.2, 0.4], [0.2, 2.0], False),
    ([0.2, 2.0], [2.0, 0.2], False),
    ([0.2, 0.0], None, False),
    ([0.2, 0.0], [0.3, 0.0], True),
]


@pytest.mark.parametrize(("of_a", "of_b", "fits"), FEATURES)
def test_an_attack_on_b_may_do_no_more_than_budgets_of_a_count(of_a, of_b, fits):
    """It could move a feature of B ten times as far with the same budget, and was compared."""
    from surefoot.noise import Noise
    from surefoot.proof.comparison import check_budgets_count_alike
    from surefoot.verification.comparison import _exceeds_budgets

    noises = [Noise.of(sigmas or 0.2) for sigmas in (of_a, of_b)]
    setups = [{"sigma": noise.sigma, **noise.setup} for noise in noises]
    assert _exceeds_budgets(*setups) == (not fits)
    if fits:
        check_budgets_count_alike(*noises)
    else:
        with pytest.raises(surefoot.InputError, match="sigmas in the same proportion"):
            check_budgets_count_alike(*noises)


def test_agents_whose_budgets_count_differently_are_not_compared_under_attack(tmp_path):
    more = {"sigma": 0.2, "sigma_b": [0.2, 2.0, 0.2, 2.0], "attack": "adaptive", "budgets": [0.2], "n_episodes": 4}
    with pytest.raises(surefoot.InputError, match="sigmas in the same proportion"):
        surefoot.compare("cartpole-1-s0.2", "cartpole-1-s0.8", "cartpole-1", **more, out=tmp_path / "run")


def test_a_certificate_without_the_sentence_about_its_event_is_refused(tmp_path):
    """The rewards of the environment are another matter than how often the pole stands."""
    folder = certify_event(tmp_path / "run", "forging_envs:stands").directory
    content = read_json(folder / "certificate.json")
    del content["success"]
    content["statement"] = write_sentence("certificate.json", content)
    write_json(folder / "certificate.json", content)
    assert "success is None" in problems(verify(folder, blocks=0))["certificate and episode data"]


# --- a certain budget that episodes share -----------------------------------------------------------------------------

CERTAIN = {
    # What is written, which check refuses it, and its words.
    "a budget that is certain, as one on average": ({"certain": False}, "bounds", "is not computed here"),
    "certain by a number": ({"certain": 1}, "bounds", "not computed here"),
    "fewer episodes that share it": ({"n_shared_episodes": 2}, "bounds", "the method gives"),
    "more episodes that share it": ({"n_shared_episodes": 40}, "bounds", "the returns prove no better"),
    "wins that are none": ({"method": "binary"}, "bounds", "allows only the returns floor and ceiling"),
    "a pilot that there was not": ({"n_pilot_episodes": 3}, "bounds", "there are no pilot episodes"),
    "a planner that plans nothing": ({"planner": 8}, "bounds", "plans nothing"),
    "another norm over fewer observations": (
        {"norm": {"name": "linf", "budgets": [0.0, 0.5], "coordinates": 1, "observations": 1, "factor": 1.0}},
        "bounds",
        "is not that of the setup",
    ),
}


@pytest.mark.parametrize("what", CERTAIN)
def test_a_forged_certain_budget_is_refused_by_name(what, tmp_path):
    record = Episodes.from_returns(
        np.random.default_rng(0).beta(5, 1, 200), sigma=0.5, floor=0, ceiling=1, max_steps=7, n_planned=200
    )
    record.save(tmp_path / "episodes.npz")
    surefoot.certify_shared_budget(record, [0.0, 0.5], 5, certain=True).save(tmp_path)
    assert problems(verify(tmp_path, blocks=0)) == {}
    changes, check, words = CERTAIN[what]
    content = {**read_json(tmp_path / "shared.json"), **changes}
    content["statement"] = write_sentence("shared.json", content)
    write_json(tmp_path / "shared.json", content)
    found = {name.removeprefix("shared.json: "): said for name, said in problems(verify(tmp_path, blocks=0)).items()}
    assert words in found[check]
