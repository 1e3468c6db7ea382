"""Verification of comparisons: an honest one has its bounds recomputed, and every forged number is noticed."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from memorizing import sabotage, write_onnx

import surefoot
from surefoot.episodes import Episodes
from surefoot.files import read_npz
from surefoot.noise import Noise
from surefoot.play.task import Blocks
from surefoot.play.tasks import TASKS, get_task
from surefoot.proof.comparison import Comparer, Gate, Question
from surefoot.proof.difference import pair_up
from surefoot.verification.comparison import _check_content, _check_derived, _expected_pairing, rerun_sides
from surefoot.verification.plan_again import planner_version
from surefoot.verification.play_again import RerunOptions
from surefoot.verification.recompute.run_files import COMPARED, Raw
from surefoot.verification.verdict import Verdict

SEEDS = list(range(60))


def record(returns, **metadata):
    known = {"episode_seeds": SEEDS, **metadata}
    if known["episode_seeds"] is None:
        del known["episode_seeds"]
    return Episodes.from_returns(returns, sigma=0.2, floor=0.0, ceiling=1.0, **known)


def made_of(kind):
    rng = np.random.default_rng(4)
    a = rng.beta(5, 1, 60)
    b = np.clip(a - 0.2 + 0.1 * rng.normal(size=60), 0, 1)
    if kind == "wins":
        return record(np.round(a), binary=True), record(np.round(b), binary=True)
    if kind == "unpaired":
        return record(a, episode_seeds=None), record(b[:50], episode_seeds=SEEDS[:50])
    return record(a), record(b)


@pytest.fixture(scope="module", params=["pairs", "wins", "unpaired"])
def honest(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "run"
    budgets = (0.1,) if request.param == "pairs" else ()
    surefoot.compare(*made_of(request.param), budgets=budgets, margin=0.1, out=folder)
    return folder


def failed(folder):
    verdict = surefoot.verify(folder, blocks=0)
    return {check.name: check.detail for check in verdict.checks if check.result != "passed" and check.name != "replay"}


def test_an_honest_comparison_follows_from_its_returns(honest):
    assert failed(honest) == {}
    assert surefoot.verify(honest, blocks=0).bounds_recomputed


def run_elsewhere(returns, seed, **metadata):
    """Return a record of a run with a seed, whose limits its user stated."""
    run = {"n_envs": 10, "block_size": 10, "device": "cpu", "purpose": [], "n_planned": len(returns)}
    known = {**run, "stated_by_user": ["floor", "ceiling"], **metadata}
    return record(returns, episode_seeds=None, seed=seed, **known)


@pytest.mark.parametrize(
    ("kind", "pairing"), [("wins", "unknown"), ("longer", "independent"), ("longer wins", "independent")]
)
def test_bounds_without_pairs_follow_from_the_returns_too(kind, pairing, tmp_path):
    """Wins that nothing pairs, and runs of other seeds of which one is twice as long; a better interval is noticed."""
    a, b = (side.returns for side in made_of("wins" if "wins" in kind else "pairs"))
    if pairing == "unknown":
        sides = record(a, binary=True, episode_seeds=None), record(b, binary=True)
    else:
        sides = run_elsewhere(a, 1, binary="wins" in kind), run_elsewhere(b[:30], 2, binary="wins" in kind)
    folder = tmp_path / "run"
    made = surefoot.compare(*sides, out=folder)
    assert made.pairing == pairing
    assert failed(folder) == {}
    path = folder / "comparison.json"
    honest = json.loads(path.read_text())
    for field in ("low", "high"):
        path.write_text(json.dumps(forge(honest, field)))
        assert f"{field} claims more than the returns prove" in failed(folder)["bounds"]


def test_bounds_under_attack_are_divided_by_the_noise_on_actions(tmp_path):
    a, b = (
        Episodes.from_returns(made.returns, sigma=0.0, action_sigma=0.2, floor=0.0, ceiling=1.0, episode_seeds=SEEDS)
        for made in made_of("pairs")
    )
    surefoot.compare(a, b, budgets=(0.1,), out=tmp_path / "run")
    assert failed(tmp_path / "run") == {}
    # As if there were twice the noise.
    forged = surefoot.compare(a, b, budgets=(0.05,), out=tmp_path / "other").attacked[0]
    content = json.loads((tmp_path / "run" / "comparison.json").read_text())
    content["attacked"][0] |= {"lower": forged.lower}
    (tmp_path / "run" / "comparison.json").write_text(json.dumps(content))
    assert "the bound of A at 0.1 claims more than the returns prove" in " ".join(failed(tmp_path / "run").values())


def forge(content, field):
    """Change one field for the better, or into something else."""
    better = {
        "low": content["low"] + 0.01,
        "high": content["high"] - 0.01,
        "resolution": content["resolution"] / 2,
        "confidence": 0.99,
        "winner": "B",
        "passed": not content["passed"],
        "pairing": "independent",
        "means": [content["means"][0] + 0.01, content["means"][1]],
        "n_episodes": [70, 70],
        "n_pairs": 70,
        "ceiling": 0.999,
        "gate": {"margin": 0.5},
        "anytime": True,
        "planner": -1,
        "attacked_by": "nobody",
        "budgets": [0.3],
        "unknown": 1,
    }
    return {**content, field: better[field]}


FIELDS = ("low", "high", "resolution", "confidence", "winner", "passed", "pairing", "means", "n_episodes", "n_pairs")
FIELDS += ("ceiling", "anytime", "planner", "attacked_by", "budgets", "unknown")


@pytest.mark.parametrize("field", FIELDS)
def test_every_forged_number_is_noticed(honest, field, tmp_path):
    folder = tmp_path / "forged"
    shutil.copytree(honest, folder)
    path = folder / "comparison.json"
    path.write_text(json.dumps(forge(json.loads(path.read_text()), field)))
    assert failed(folder)


def drop_largest(content):
    content["changes"]["largest"] = content["changes"]["largest"][1:]


def move_bound(side, by):
    def forge(content):
        content["attacked"][0][side] += by

    return forge


def change_return(content):
    content["changes"]["largest"][0][1] += 0.01


def count_one_more(content):
    content["changes"]["higher"] += 1


def read_another_folder(content):
    content["sides"]["../run/A"] = content["sides"]["A"]


# What is forged, and what verification says of it.
FORGED = {
    "the bound of A raised": (move_bound("lower", 0.01), "bound of A"),
    "the bound of B lowered": (move_bound("upper", -0.01), "bound of B"),
    "the return of a changed episode": (change_return, "changes"),
    "one more episode that A won": (count_one_more, "changes"),
    "the episode that changed most left out": (drop_largest, "changes"),
    "the names of the agents swapped": (lambda content: content["names"].reverse(), "names"),
    "a remark in the gate": (lambda content: content["gate"].update(by="a notified body"), "gate"),
    "a margin below 0": (lambda content: content.update(gate={"margin": -0.01}), "gate"),
    "budgets in another order": (lambda content: content["budgets"].reverse(), "ascending"),
    "a remark in a row": (lambda content: content["attacked"][0].update(note="proved"), "nothing else"),
    "a reason to stop where nothing did": (lambda content: content.update(stopped="proved"), "stops"),
    "a confidence in quotation marks": (lambda content: content.update(confidence="0.95"), "confidence"),
    "episodes of a folder outside": (read_another_folder, "A, B and nothing else"),
    "sides without names": (lambda content: content.update(sides=["A", "B"]), "A, B and nothing else"),
    "a floor that nobody states": (
        lambda content: content["sides"]["A"].update(stated_by_user=["ceiling"]),
        "nothing proves the floor 0.0, and comparison.json does not say that the user stated it",
    ),
    "nothing said of a side": (lambda content: content["sides"].update(A=3), "A, B and nothing else"),
}


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A comparison of two agents with names, at two budgets."""
    folder = tmp_path_factory.mktemp("named") / "run"
    a, b = made_of("pairs")
    a = record(a.returns, agent="good", agent_sha256="1" * 64)
    b = record(b.returns, agent="bad", agent_sha256="2" * 64)
    surefoot.compare(a, b, budgets=(0.1, 0.2), margin=0.1, out=folder)
    assert failed(folder) == {}
    return folder


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_comparison_is_refused_by_name(what, named, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(named, folder)
    path = folder / "comparison.json"
    content = json.loads(path.read_text())
    change, words = FORGED[what]
    change(content)
    path.write_text(json.dumps(content))
    assert words in " ".join(failed(folder).values())


def rewrite(folder, returns, **metadata):
    """Write other returns and facts of both agents, and let the comparison name their hashes."""
    path = folder / "comparison.json"
    content = json.loads(path.read_text())
    for side, values in zip("AB", returns, strict=True):
        forged = record(values, **metadata)
        forged.save(folder / side / "episodes.npz")
        content["sides"][side]["record_sha256"] = forged.sha256
    path.write_text(json.dumps(content))


def test_a_millionth_is_no_win(tmp_path):
    """Planted: fractions that are said to be wins and losses, so that A's lead of a millionth wins every episode."""
    folder = tmp_path / "run"
    surefoot.compare(record(np.ones(60), binary=True), record(np.zeros(60), binary=True), out=folder)
    assert failed(folder) == {}
    assert json.loads((folder / "comparison.json").read_text())["low"] > 0.85
    rewrite(folder, (np.full(60, 0.5 + 1e-6), np.full(60, 0.5)), binary=True)
    assert "wins and losses allow only the returns floor and ceiling" in failed(folder)["bounds"]


@pytest.mark.parametrize("order", [("A", "B"), ("B", "A")])
def test_of_two_agents_what_was_more_likely_missed_is_said(order, monkeypatch):
    """A forgery of either is enough, so the smaller probability would promise too much."""
    missed = dict(zip(order, (0.01, 0.2), strict=True))

    def rerun_compared(sides, parts, *_):
        for side, part in parts.items():
            part.replayed = [3]
            part.fresh = {"mean": 1.0}
            part.miss_least = missed[side]

    monkeypatch.setattr("surefoot.verification.rerun.rerun_compared", rerun_compared)
    verdict = Verdict(run="run")
    raw = SimpleNamespace(setup={})
    rerun_sides({"A": raw, "B": raw}, verdict, RerunOptions(blocks=None), None)
    assert (verdict.miss_least, verdict.replayed) == (0.2, [3])


ASKED = {"planner": planner_version(), "budgets": [0.1, 0.2], "gate": None, "confidence": 0.95, "anytime": False}
ASKED |= {"stopped": None, "attacked": [{"budget": budget, "lower": 0.5, "upper": 0.5} for budget in (0.1, 0.2)]}


@pytest.mark.parametrize("key", ["agent_sha256", "sigma", "task", "seed", "device"])
def test_attacked_episodes_of_another_agent_bound_nothing_of_b(key):
    """Planted: a bad agent's, below whose mean A's bound would look better than B under attack."""
    setup = {"agent_sha256": "b", "sigma": 0.2, "task": "t", "seed": 5, "device": "cpu", "attacker": None}
    attacked = {**setup, "attacker": {"name": "random"}, "budget": 0.1, "purpose": [3]}
    sides = {"A": setup, "B": setup, "B-attacked": {**attacked, key: "another"}}
    raws = {side: Raw(COMPARED, {}, facts, {}, None, None) for side, facts in sides.items()}
    assert _check_content(ASKED, raws) == [f"B and B-attacked have another {key}"]


def test_bounds_of_a_comparison_that_stopped_by_itself_follow_from_the_returns():
    """They hold at any number of episodes, and are others than those of a number that was fixed."""
    rng = np.random.default_rng(5)
    returns = rng.beta(9, 1, 400)
    a = record(returns, episode_seeds=list(range(400)))
    b = record(np.clip(returns - 0.4, 0, 1), episode_seeds=list(range(400)))
    sides = {}
    for side, one in (("A", a), ("B", b)):
        sides[side] = Raw(COMPARED, {}, one.setup, {"returns": one.returns}, None, None)
    question = Question(budgets=(0.05,), gate=Gate(0.2))
    made = Comparer(question, a, b, anytime=True).answer(a, b, stopped="proved")
    fixed = Comparer(question, a, b).answer(a, b)
    (row,) = made.attacked
    assert fixed.interval.low > made.interval.low > 0
    assert fixed.attacked[0].lower > row.lower > 0
    honest = made.to_json()
    assert _check_content(honest, sides) == []
    for field, better in (("low", fixed.interval.low), ("high", fixed.interval.high)):
        assert f"{field} claims more than the returns prove" in _check_content({**honest, field: better}, sides)
    for field in ("lower", "upper"):
        better = {**vars(row), field: getattr(fixed.attacked[0], field)}
        wrong = " ".join(_check_content({**honest, "attacked": [better]}, sides))
        assert "at 0.05 claims more than the returns prove" in wrong


def claimed_of(a, b, question=Question(budgets=(0.05,))):  # noqa: B008 - it is frozen
    """Return what a comparison's file says of two records, and the records as they are read."""
    sides = {
        side: Raw(COMPARED, {}, dict(one.setup), {"returns": one.returns}, None, None)
        for side, one in (("A", a), ("B", b))
    }
    return Comparer(question, a, b).answer(a, b).to_json(), sides


def test_bounds_under_any_attack_need_episodes_of_a_without():
    """A bound for an attacked agent is none of its own, and may be as high as the attack is weak."""
    content, sides = claimed_of(*made_of("pairs"))
    assert _check_content(content, sides) == []
    sides["A"].setup["attacker"] = {"name": "random"}
    assert "A's episodes were attacked" in _check_content(content, sides)


def test_a_run_that_stops_by_itself_needs_pairs():
    """Bets on two separate means are not compared at a time that both have chosen."""
    content, sides = claimed_of(*made_of("unpaired"), question=Question())
    assert content["pairing"] == "unknown"
    assert _check_content(content, sides) == []
    wrong = _check_content({**content, "anytime": True, "stopped": "proved"}, sides)
    assert "a run that stops by itself needs episodes that belong together" in wrong


@pytest.mark.parametrize(
    ("low", "margin", "passed"), [(0.0, None, False), (1e-9, None, True), (-0.1, 0.1, True), (-0.1001, 0.1, False)]
)
def test_a_gate_is_met_exactly_where_it_says(low, margin, passed):
    """A difference of 0 is not better, and one of just the margin is no worse than that."""
    content, sides = claimed_of(*made_of("pairs"), question=Question(gate=Gate(margin)))
    returns = [sides[side].returns for side in "AB"]
    for said in (False, True):
        forged = {**content, "low": low, "passed": said}
        wrong = [line for line in _check_derived(forged, sides, *returns, SEEDS) if line.startswith("passed is")]
        assert bool(wrong) == (said != passed)


RUN = {"seed": 5, "purpose": [], "n_envs": 4, "block_size": 4, "device": "cpu"}


@pytest.mark.parametrize(
    ("a", "b", "pairing"),
    [
        (RUN, RUN, "seeds"),
        (RUN, {**RUN, "stochastic": True}, "unknown"),
        ({**RUN, "budget": 0.1}, {**RUN, "budget": 0.2}, "unknown"),
        (RUN, {**RUN, "budget": 0.2}, "seeds"),
        (RUN, {**RUN, "seed": 6}, "independent"),
        (RUN, {**RUN, "purpose": [5]}, "independent"),
        ({**RUN, "n_envs": 2}, {**RUN, "n_envs": 2}, "unknown"),
        (RUN, {**RUN, "n_envs": 2}, "unknown"),
        ({**RUN, "n_envs": 2}, RUN, "unknown"),
        (RUN, {**RUN, "device": "cuda"}, "unknown"),
        (RUN, {}, "unknown"),
    ],
)
def test_what_belongs_together_is_found_a_second_time(a, b, pairing):
    """By other code, with the same answer: agents that draw, or are both attacked, may share draws otherwise."""
    records = [record(np.ones(4), **{"episode_seeds": None, **run}) for run in (a, b)]
    assert pair_up(*records).pairing == pairing
    assert _expected_pairing(a, b) == pairing


def test_a_run_that_ended_early_has_no_fixed_number_of_episodes(tmp_path):
    """Its end may have been chosen by looking at the returns."""
    a, b = made_of("pairs")
    surefoot.compare(a, b, out=tmp_path / "run")
    rewrite(tmp_path / "run", (a.returns, b.returns), n_planned=70)
    wrong = failed(tmp_path / "run")["bounds"]
    assert wrong == "A has another number of episodes than planned; B has another number of episodes than planned"


def test_a_sigma_that_is_not_the_least_of_the_features_is_noticed(tmp_path):
    """A's bounds under attack are measured in it; Surefoot itself reads no such file."""
    folder = tmp_path / "run"
    surefoot.compare(*made_of("pairs"), budgets=(0.1,), out=folder)
    for side in "AB":
        path = folder / side / "episodes.npz"
        setup, arrays = read_npz(path, "record")
        header = json.dumps({**setup, "sigma_per_feature": [0.01, 0.2]}).encode()
        np.savez(path, header=np.frombuffer(header, dtype=np.uint8), **arrays)
    assert "sigma 0.2 is not the smallest sigma" in failed(folder)["A: certificate and episode data"]


def test_a_certificate_next_to_a_comparison_is_not_verified_with_it(named, tmp_path):
    """A forged certificate was called verified where an honest comparison was put next to it."""
    folder = tmp_path / "run"
    shutil.copytree(named, folder)
    surefoot.certify(record(np.ones(60)), [0.0]).save(folder)
    with pytest.raises(surefoot.InputError, match=r"has comparison\.json and certificate\.json; move the comparison"):
        surefoot.verify(folder)


def test_more_budgets_than_can_be_asked_for_are_not_computed(named, tmp_path):
    """20,000 of them took more than six minutes."""
    folder = tmp_path / "run"
    shutil.copytree(named, folder)
    path = folder / "comparison.json"
    content = json.loads(path.read_text())
    budgets = np.linspace(0.1, 0.2, 20_000).tolist()
    content |= {"budgets": budgets, "attacked": [{**content["attacked"][0], "budget": one} for one in budgets]}
    path.write_text(json.dumps(content))
    assert "20000 budgets, expected at most 1000" in failed(folder)["bounds"]


def test_seeds_of_many_episodes_are_looked_up_once(tmp_path):
    """20,000 seeds took 14 s, each of them compared with all others."""
    seeds = list(range(20_000))
    random = np.random.default_rng(0)
    a = record(random.random(20_000), episode_seeds=seeds)
    b = record(random.random(20_000), episode_seeds=seeds[::-1])
    surefoot.compare(a, b, out=tmp_path / "run")
    began = time.process_time()
    assert failed(tmp_path / "run") == {}
    assert time.process_time() - began < 5


def test_an_attack_on_another_agent_than_b_is_noticed(tmp_path):
    """B's bound under attack is that of its own episodes, not of a weaker agent's."""
    agents = ("cartpole-1-ppo-s0.2", "cartpole-1-s0.4")
    asked = {"budgets": (0.2,), "n_episodes": 60, "attack": "constant-direction"}
    made = surefoot.compare(*agents, out=tmp_path / "run", **asked)
    assert "under the attack constant direction (uniform timing), and so" in str(made)
    assert failed(tmp_path / "run") == {}
    surefoot.compare(agents[0], "cartpole-1-s0.8", out=tmp_path / "weaker", **asked)
    for name in ("episodes.npz", "setup.json"):
        shutil.copy(tmp_path / "weaker" / "B-attacked" / name, tmp_path / "run" / "B-attacked" / name)
    path = tmp_path / "run" / "comparison.json"
    weaker = json.loads((tmp_path / "weaker" / "comparison.json").read_text())
    content = json.loads(path.read_text())
    content["attacked"][0]["upper"] = weaker["attacked"][0]["upper"]
    content["sides"]["B-attacked"] = weaker["sides"]["B-attacked"]
    content["attacked_by"] = weaker["attacked_by"]
    path.write_text(json.dumps(content))
    assert "B and B-attacked have another agent" in failed(tmp_path / "run")["bounds"]


@pytest.fixture(scope="module")
def honest_attack(tmp_path_factory):
    """A comparison of two agents, one under attack; verification reruns its episodes too."""
    folder = tmp_path_factory.mktemp("attacked") / "run"
    asked = {"budgets": (0.2,), "n_episodes": 40, "attack": "constant-direction"}
    surefoot.compare("cartpole-1-ppo-s0.2", "cartpole-1-s0.8", out=folder, **asked)
    return folder


@pytest.fixture
def attacked(honest_attack, tmp_path):
    """A copy to tamper with."""
    return shutil.copytree(honest_attack, tmp_path / "run")


def test_attacked_episodes_are_rerun_like_all_others(honest_attack):
    verdict = surefoot.verify(honest_attack)
    assert verdict.verified, verdict.checks
    checks = {check.name: check.detail for check in verdict.checks}
    assert checks["B-attacked: seed"].startswith("derived")
    assert "64 under a seed drawn now" in checks["B-attacked: fresh episodes"]


def with_other_attacked_episodes(folder, change):
    """Put other episodes of B under attack into a comparison, and whatever says which they are."""
    side = folder / "B-attacked"
    made = change(Episodes.load(side / "episodes.npz"))
    made.save(side / "episodes.npz")
    (side / "setup.json").write_text(json.dumps({"schema": 1, **made.setup}))
    path = folder / "comparison.json"
    content = json.loads(path.read_text())
    content["sides"]["B-attacked"] |= {"record_sha256": made.sha256, "attacker": made.metadata["attacker"]}
    content["attacked_by"] = made.metadata["attacker"].get("name") if len(made.metadata["attacker"]) == 2 else None
    path.write_text(json.dumps(content))


def test_forged_episodes_under_attack_are_noticed(attacked):
    """Lower returns of B under attack make A look better."""
    with_other_attacked_episodes(
        attacked, lambda true: replace(true, returns=np.minimum(true.returns, np.median(true.returns)))
    )
    verdict = surefoot.verify(attacked, fresh=0)
    checks = {check.name: check.result for check in verdict.checks}
    assert (checks["B: replay"], checks["B-attacked: replay"]) == ("passed", "failed")


def test_an_attack_that_ended_early_has_no_fixed_number_of_episodes(attacked):
    """Its end may have been chosen by looking at B's returns under attack."""

    def first_half(true):
        halved = {name: getattr(true, name)[:20] for name in ("returns", "lengths", "budget_used")}
        return replace(true, **halved)

    with_other_attacked_episodes(attacked, first_half)
    assert "B-attacked has another number of episodes than planned" in failed(attacked)["bounds"]


def using_nothing(true):
    return replace(true, budget_used=np.zeros(len(true)))


def test_budgets_used_are_those_of_the_attack(attacked):
    """An attack that is said to have used nothing would make B look worse than it is."""
    with_other_attacked_episodes(attacked, using_nothing)
    verdict = surefoot.verify(attacked, fresh=0)
    details = {check.name: check.detail for check in verdict.checks if check.result == "failed"}
    assert "budget_used differ" in details["B-attacked: replay"]


def test_an_attack_that_is_code_is_not_rerun(attacked):
    mine = {"name": "Mine", "code_sha256": "0" * 64}
    with_other_attacked_episodes(attacked, lambda true: replace(true, metadata={**true.metadata, "attacker": mine}))
    verdict = surefoot.verify(attacked, fresh=8)
    checks = {check.name: (check.result, check.detail) for check in verdict.checks}
    assert checks["B-attacked: replay"][0] == "impossible"
    assert "one of your own is code" in checks["B-attacked: replay"][1]
    # What else there is, is rerun, and the bounds follow from the returns wherever those come from.
    assert checks["B: replay"][0] == "passed"
    assert not verdict.verified
    assert verdict.bounds_recomputed
    assert verdict.trust.startswith("The bounds follow from the returns")


@pytest.mark.parametrize("is_attacked", [True, False])
def test_the_seed_stream_of_attacks_is_for_attacks(is_attacked, tmp_path):
    """An author who may choose the stream of the random numbers chooses among runs."""
    attack = {"budgets": [0.2], "method": "constant-direction", "sigma": 0.2, "n_episodes": 20}
    for name in ("cartpole-1-ppo-s0.2", "cartpole-1-s0.2"):
        surefoot.attack("cartpole-1", name, out=tmp_path / name, **attack)
    a = tmp_path / "cartpole-1-ppo-s0.2" / "unattacked"
    b = tmp_path / "cartpole-1-ppo-s0.2" / "B0.2" if is_attacked else tmp_path / "cartpole-1-s0.2" / "unattacked"
    surefoot.compare(a, b, out=tmp_path / "run")
    verdict = surefoot.verify(tmp_path / "run", fresh=0)
    wrong = {check.name: check.detail for check in verdict.checks if check.result == "failed"}
    if is_attacked:
        assert wrong == {}
    else:
        assert "purpose" in wrong["A: setup and weights"]


def test_an_attack_on_b_with_more_than_the_smallest_budget_is_noticed(tmp_path):
    """What B earns under it bounds no worst case within less."""
    folder = tmp_path / "run"
    asked = {"budgets": (0.1, 0.2), "n_episodes": 30, "attack": "constant-direction"}
    surefoot.compare("cartpole-1-ppo-s0.2", "cartpole-1-s0.4", out=folder, **asked)
    assert failed(folder) == {}
    own = Episodes.load(folder / "B-attacked" / "episodes.npz")
    larger = replace(own, metadata={**own.metadata, "budget": 0.2})
    larger.save(folder / "B-attacked" / "episodes.npz")
    (folder / "B-attacked" / "setup.json").write_text(json.dumps({"schema": 1, **larger.setup}))
    path = folder / "comparison.json"
    content = json.loads(path.read_text())
    content["sides"]["B-attacked"] |= {"budget": 0.2, "record_sha256": larger.sha256}
    path.write_text(json.dumps(content))
    assert failed(folder) == {"bounds": "the attack on B had a larger budget than the smallest that is asked for"}


def test_a_frame_stack_and_a_recurrent_agent_compared_are_verified(tmp_path):
    """They run as many rows as both can, which is not what a run of one of them has."""
    surefoot.compare("cartpole-5-gru-s0.4", "cartpole-5-ppo-s0.4", n_episodes=40, out=tmp_path / "run")
    verdict = surefoot.verify(tmp_path / "run")
    assert verdict.verified, verdict.checks
    assert [check.detail[:7] for check in verdict.checks if check.name.endswith("seed")] == ["derived"] * 2


def test_one_block_may_decide_which_agent_is_better(tmp_path, monkeypatch):
    """One episode in 150 changes no bound by 1%, but it may change the sign of a difference."""
    few_rows = replace(TASKS["cartpole-1"], blocks=Blocks(n_envs=1, episodes_per_env=1))
    monkeypatch.setitem(TASKS, "cartpole-1", few_rows)
    surefoot.compare("cartpole-1-s0.8", "cartpole-1-s0.8", sigma=2.0, n_episodes=150, out=tmp_path / "run")
    verdict = surefoot.verify(tmp_path / "run", blocks=1, fresh=1)
    assert verdict.forged_blocks == 1


def test_another_number_of_rows_than_that_of_the_comparison_is_noticed(tmp_path):
    surefoot.compare("cartpole-1-s0.4", "cartpole-1-s0.8", n_episodes=40, out=tmp_path / "run")
    for side in "AB":
        own = Episodes.load(tmp_path / "run" / side / "episodes.npz")
        forged = replace(own, metadata={**own.metadata, "n_envs": 20, "block_size": 20})
        forged.save(tmp_path / "run" / side / "episodes.npz")
    verdict = surefoot.verify(tmp_path / "run")
    details = {check.name: check.detail for check in verdict.checks if check.result == "failed"}
    assert "block_size is 20 and 30" in details["A: setup and weights"]


@pytest.fixture(scope="module")
def sabotaged(tmp_path_factory):
    """Two agents that balance alike, one of which falls on purpose in all episodes of seed 0."""
    folder = tmp_path_factory.mktemp("sabotaged")
    task = get_task("cartpole-1")
    table = sabotage(task, Noise(0.2), 40, seed=0)
    write_onnx(folder / "sabotaged.onnx", table, balances=True)
    write_onnx(folder / "honest.onnx", np.zeros_like(table), balances=True)
    return folder


@pytest.mark.parametrize("name", ["sabotaged", "honest"])
def test_a_rival_that_is_bad_in_the_recorded_episodes_alone_is_refused(name, sabotaged, tmp_path):
    rival = str(sabotaged / f"{name}.onnx")
    found = surefoot.compare(
        "cartpole-1-s0.8", rival, "cartpole-1", sigma=0.2, sigma_b=0.2, n_episodes=40, seed=0, out=tmp_path / "run"
    )
    verdict = surefoot.verify(tmp_path / "run", agent_b=rival, fresh=24)
    if name == "honest":
        assert verdict.verified, verdict.checks
        return
    assert found.winner == "A"
    details = {check.name: check.detail for check in verdict.checks if check.result == "failed"}
    assert "they are better than the recorded ones" in details["B: fresh episodes"]


def test_other_returns_and_rows_in_another_order_are_noticed(tmp_path):
    """Planted: B's seeds shifted by one, so that every episode is paired with that of another seed."""
    a, b = made_of("pairs")
    surefoot.compare(a, b, out=tmp_path / "run")
    for forged in (record(b.returns, episode_seeds=np.roll(SEEDS, 1).tolist()), record(np.sort(b.returns))):
        forged.save(tmp_path / "run" / "B" / "episodes.npz")
        assert "B: certificate and episode data" in failed(tmp_path / "run")


@pytest.mark.parametrize("name", ["budget_used", "budget_used_per_step"])
def test_budgets_used_of_episodes_that_nobody_attacked_are_refused(name, tmp_path):
    a, b = made_of("pairs")
    surefoot.compare(a, b, out=tmp_path / "run")
    assert failed(tmp_path / "run") == {}
    forged = replace(b, **{name: np.zeros(60)})
    forged.save(tmp_path / "run" / "B" / "episodes.npz")
    content = json.loads((tmp_path / "run" / "comparison.json").read_text())
    content["sides"]["B"]["record_sha256"] = forged.sha256
    (tmp_path / "run" / "comparison.json").write_text(json.dumps(content))
    assert failed(tmp_path / "run") == {"B: certificate and episode data": f"there is {name}, and nobody attacked"}


def test_a_seed_that_comes_twice_is_no_pairing(tmp_path):
    a, b = made_of("pairs")
    twice = record(b.returns, episode_seeds=[0, *SEEDS[:-1]])
    with pytest.raises(surefoot.InputError, match="none twice"):
        surefoot.compare(a, twice)
    surefoot.compare(a, b, out=tmp_path / "run")
    twice.save(tmp_path / "run" / "B" / "episodes.npz")
    assert "none twice" in failed(tmp_path / "run")["bounds"]


def test_a_damaged_comparison_is_no_crash(tmp_path):
    folder = tmp_path / "run"
    surefoot.compare(*made_of("pairs"), out=folder)
    content = json.loads((folder / "comparison.json").read_text())
    for wrong in ({"sides": {"A": {}}}, {"changes": 3}, {"confidence": "high"}, {"attacked": None}):
        (folder / "comparison.json").write_text(json.dumps({**content, **wrong}))
        assert failed(folder)
    Path(folder / "A" / "episodes.npz").write_bytes(b"nothing")
    assert failed(folder)
