"""Which runs belong together: certificates and attacks of one agent, records and their budgets, neighbors of a page."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from pages import attacked as written_attack
from pages import certified as written_certificate
from surefoot.api.query import Requirement
from surefoot.api.returns import certify_returns
from surefoot.episodes import Baseline, Episodes
from surefoot.errors import InputError
from surefoot.files import read_json, write_json
from surefoot.noise import Noise
from surefoot.play.channel import Scope
from surefoot.play.measured_baselines import BASELINES
from surefoot.play.plan import Plan
from surefoot.play.tasks import get_task
from surefoot.proof.comparison import COMPARISON_FILE, Question
from surefoot.proof.query import Query, certify, certify_shared_budget
from surefoot.proof.stopping import StoppingRule
from surefoot.report.sentences import IDLE_SHARE
from surefoot.runs import attacked, compared
from surefoot.runs import certified as certified_module
from surefoot.runs.attacked import AttackGrid, matching_certificates, summary
from surefoot.runs.certified import certified_run, run_name
from surefoot.runs.finish import MOST_NEIGHBORS, write_run_report
from surefoot.runs.folder import RunFolder, kept_episodes
from surefoot.runs.read import _find_baseline, neighbors, read_run
from surefoot.runs.shares import Share, run_share
from toys import actor_with_critic, balancer, short_pole

TASK, SIGMA = short_pole(30), 0.2
BASE = Plan(task=TASK, policy=balancer(), noise=Noise.of(SIGMA), n_episodes=8, n_envs=2, episodes_per_env=1)
GRID = AttackGrid(base=BASE, budgets=(0.1, 0.2), lambdas=(0.0, 0.2), noise_samples=3)
FACTS = {"task": TASK.name, "agent": BASE.policy.name, "agent_sha256": BASE.policy.sha256, "method": "dkw"}


# --- certificates -----------------------------------------------------------------------------------------------------


def episodes(sigma=SIGMA, **changes):
    returns = np.resize([30.0, 29.0], 200)
    return Episodes.from_returns(returns, sigma=sigma, floor=0, ceiling=30, **{**FACTS, **changes})


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """Certificates next to an attack: two of its setup, and every kind that is about something else."""
    tmp_path = tmp_path_factory.mktemp("beside")
    made = {
        "fits": certify(episodes(), [0.1]),
        "fits-too": certify(episodes(seed=7), [0.1, 0.2], method="dkw"),
        "other-agent": certify(episodes(agent_sha256="another"), [0.1]),
        "other-task": certify(episodes(task="cartpole-1"), [0.1]),
        "other-sigma": certify(episodes(sigma=0.4), [0.1]),
        "other-features": certify(
            Episodes.from_returns([30.0] * 50, sigma=(0.2, 0.4, 0.4, 0.4), floor=0, ceiling=30, **FACTS), [0.1]
        ),
        "stochastic": certify(episodes(stochastic=True), [0.1]),
        "discounted": certify(episodes(gamma=0.9), [0.1]),
        "shared": certify_shared_budget(episodes(), [0.1], 3),
    }
    for name, certificate in made.items():
        (tmp_path / name).mkdir()
        certificate.save(tmp_path / name)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "certificate.json").write_text("{")
    return tmp_path


def test_certificates_beside_the_attack_are_found(beside):
    """Those of its setup, all of them, and no others: a false match is a false contradiction."""
    found = matching_certificates(GRID, None, beside)
    assert [path.parent.name for path, _ in found] == ["fits", "fits-too"]
    assert [certificate.budgets.tolist() for _, certificate in found] == [[0.1], [0.1, 0.2]]
    assert matching_certificates(GRID, None, beside / "fits") == []


def test_an_attack_with_a_budget_for_each_step_is_matched_with_none(beside):
    """It may do more in an episode than its budget, and would contradict what is true."""
    grid = replace(GRID, base=replace(BASE, scope=Scope(per_step=True)))
    assert matching_certificates(grid, None, beside) == []
    with pytest.raises(InputError, match="is about another task"):
        matching_certificates(grid, beside / "fits", beside)


@pytest.mark.parametrize(
    "name",
    ["other-agent", "other-task", "other-sigma", "other-features", "stochastic", "discounted", "shared/shared.json"],
)
def test_a_certificate_that_is_named_and_does_not_fit_is_refused(beside, name):
    with pytest.raises(InputError, match="is about another task, step limit, agent or sigma than this attack"):
        matching_certificates(GRID, beside / name, beside)


def test_a_certificate_that_is_named_is_the_only_one(beside, tmp_path):
    ((path, _),) = matching_certificates(GRID, beside / "fits-too", beside)
    assert path == beside / "fits-too" / "certificate.json"
    ((path, _),) = matching_certificates(GRID, beside / "fits" / "certificate.json", beside)
    assert path == beside / "fits" / "certificate.json"
    with pytest.raises(InputError, match=r"certificate\.json"):
        matching_certificates(GRID, beside / "shared", beside)  # it has only a shared budget's


# --- what an attack's summary says ------------------------------------------------------------------------------------

RETURNS = {(0.1, 0.0): [20.0, 24.0], (0.1, 0.2): [10.0, 20.0], (0.2, 0.0): [5.0, 6.0], (0.2, 0.2): [7.0, 27.0]}
USED = {(0.1, 0.0): 0.05, (0.1, 0.2): 0.00099, (0.2, 0.0): 0.0021, (0.2, 0.2): 0.2}


def records():
    steps = np.array([1.0, 2.0, 0.0])
    return {
        place: Episodes(
            returns=np.array(values),
            sigma=SIGMA,
            floor=0.0,
            ceiling=30.0,
            budget_used=np.full(2, USED[place]),
            budget_used_per_step=steps * (1 + index),
            metadata={},
        )
        for index, (place, values) in enumerate(RETURNS.items())
    }


def test_the_curve_is_the_lowest_mean_of_each_budget_with_its_own_error_lambda_and_spending():
    """The lowest of the first budget is at the second lambda, that of the second at the first; errors say otherwise."""
    made = summary(GRID, records())
    assert made["mean"] == [[22.0, 15.0], [5.5, 17.0]]
    assert made["sem"] == pytest.approx(np.array([[2.0, 5.0], [0.5, 10.0]]))
    assert (made["curve"], made["curve_sem"], made["curve_lambda"]) == (
        [15.0, 5.5],
        pytest.approx([5.0, 0.5]),
        [0.2, 0.0],
    )
    assert made["budget_used_per_step"] == [
        [1.0, 2.0],
        [1.5, 3.0],
    ]  # of two episodes; nothing is listed after the last step used
    assert made["largest_budget_used"] == 0.2
    assert made["mean_budget_used"] == pytest.approx(np.array([[0.05, 0.00099], [0.0021, 0.2]]))
    assert made["did_not_attack"] == [[False, True], [False, False]]
    assert IDLE_SHARE * 0.1 > 0.00099 > IDLE_SHARE * 0.05
    facts = {
        key: made[key]
        for key in ("task", "agent", "agent_sha256", "sigma", "seed", "n_episodes", "noise_samples", "method")
    }
    assert facts == {
        **{key: FACTS[key] for key in ("task", "agent", "agent_sha256")},
        "sigma": SIGMA,
        "seed": 0,
        "n_episodes": 8,
        "noise_samples": 3,
        "method": "paper",
    }


def test_the_taped_attack_is_the_strongest_at_the_largest_budget(tmp_path, monkeypatch):
    taped = []
    monkeypatch.setattr(attacked, "record_replay", lambda tracks, folder, **which: taped.append((tracks, which)))
    grid = replace(GRID, budgets=(0.1, 0.2, 0.15))
    quiet = Episodes.from_returns([9, 5, 9, 4], sigma=SIGMA, floor=0, ceiling=9)
    quiet.save(tmp_path / "unattacked" / "episodes.npz")
    records = [replace(quiet, returns=quiet.returns - [9, 0, 0, 0]) for _ in grid.configurations()]
    records[grid.configurations().index((0.2, 0.2))] = replace(quiet, returns=np.array([9.0, 1.0, 3.0, 4.0]))
    attacked._record_most_changed(grid, {"curve_lambda": [0.0, 0.2, 0.0]}, records, tmp_path)
    ((tracks, which),) = taped
    assert list(tracks) == ["quiet", "attacked"]
    under = tracks["attacked"]
    assert (tracks["quiet"].attacker, tracks["quiet"].setup()) == (None, grid.twin.setup())
    assert (under.budget, under.attacker.describe()["lambda_q"]) == (0.2, 0.2)
    # The one that lost most, and not the one that ended lowest.
    assert which == {"episode": 2, "returns": (9.0, 3.0)}


def test_the_taped_episode_of_two_agents_is_the_one_in_which_they_differ_most(tmp_path, monkeypatch):
    """Whichever of the two is better in it."""
    taped = []
    monkeypatch.setattr(compared, "record_replay", lambda tracks, folder, **which: taped.append((tracks, which)))
    a = Episodes.from_returns([9, 5, 1, 4], sigma=SIGMA, floor=0, ceiling=9)
    b = replace(a, returns=np.array([6.0, 5.0, 8.0, 4.0]))
    plans = {"A": BASE, "B": replace(BASE, seed=1), "B-attacked": replace(BASE, seed=2)}
    compared._record_most_different(plans, {"A": a, "B": b, "B-attacked": a}, "seeds", tmp_path)
    ((tracks, which),) = taped
    assert tracks == {"A": BASE, "B": plans["B"]}
    assert which == {"episode": 2, "returns": (1.0, 8.0)}


# --- records and budgets ----------------------------------------------------------------------------------------------


def test_every_record_of_an_attack_is_that_of_its_budget(tmp_path):
    written_attack(tmp_path)
    run = read_run(tmp_path)
    assert [one.metadata["budget"] for one in run.records] == run.attack["budgets"] == [0.4, 1.0]
    assert [one.returns.mean() for one in run.records] == run.attack["curve"]


@pytest.mark.parametrize("missing", ["B0.4-lambda0", "B1-lambda0.5"])
def test_a_missing_configuration_does_not_shift_records_to_other_budgets(tmp_path, missing):
    written_attack(tmp_path)
    (tmp_path / missing / "episodes.npz").unlink()
    run = read_run(tmp_path)
    assert run.records == []
    assert run.attack["budgets"] == [0.4, 1.0]


@pytest.mark.parametrize("name", ["budgets", "curve", "curve_sem", "curve_lambda", "budget_used_per_step"])
def test_an_attack_that_lists_more_or_less_than_its_budgets_is_refused(tmp_path, name):
    """Each list by itself: what is left over would be shown at another budget, or not at all."""
    result = written_attack(tmp_path)
    for listed in (result[name][:-1], [*result[name], result[name][0]]):
        write_json(tmp_path / "attack.json", {**result, name: listed})
        with pytest.raises(InputError, match=r"expected one (mean and one standard error|value gap and one list)"):
            read_run(tmp_path)


def test_an_attack_of_an_unknown_scope_is_refused(tmp_path):
    """A page would show its budgets as those of whole episodes."""
    result = written_attack(tmp_path)
    for scope in ("l2 per step", "linf per step"):
        write_json(tmp_path / "attack.json", {**result, "scope": scope})
        assert read_run(tmp_path).identity["scope"] == scope
    write_json(tmp_path / "attack.json", {**result, "scope": "l2 per week"})
    with pytest.raises(InputError, match="no budget has the scope 'l2 per week'"):
        read_run(tmp_path)


def test_records_are_those_of_the_lambda_with_the_lowest_mean_at_their_budget(tmp_path):
    """Here the second at the first budget and the first at the second."""
    result = written_attack(tmp_path)
    write_json(tmp_path / "attack.json", {**result, "curve_lambda": [0.5, 0.0]})
    (tmp_path / "B0.4-lambda0").rename(tmp_path / "B0.4-lambda0.5")
    (tmp_path / "B1-lambda0.5").rename(tmp_path / "B1-lambda0")
    assert [one.metadata["budget"] for one in read_run(tmp_path).records] == [0.4, 1.0]


def test_episodes_that_are_kept_are_counted_in_finished_and_unfinished_directories(tmp_path):
    """Of a finished configuration all, of one that was begun its blocks, the last one shorter, of none nothing."""
    plan = replace(BASE, n_episodes=7)
    with RunFolder(tmp_path / "done", plan.setup()).opened() as store:
        store.recorded(plan)
    run_share(plan, Share(2, 2), tmp_path / "begun")  # blocks 1 and 3: two episodes and one
    with RunFolder(tmp_path / "empty", plan.setup()).opened():
        pass
    assert kept_episodes(tmp_path / "done") == 7
    assert kept_episodes(tmp_path / "begun") == 3
    assert kept_episodes(tmp_path) == 10


# --- neighbors --------------------------------------------------------------------------------------------------------


@pytest.fixture
def street(tmp_path):
    """A certificate, attacks on its agent and on others, and another certificate of the same agent."""
    home = tmp_path / "street"
    written_certificate(home / "certificate")
    written_certificate(home / "certificate-again")
    written_attack(home / "attack")
    written_attack(home / "attack-on-another", agent="agent-b")
    written_attack(home / "attack-with-other-noise", sigma=0.4)
    return home


def test_a_run_is_not_its_own_neighbor(street):
    """A directory may hold both, a certificate and an attack."""
    shutil.copy(street / "attack" / "attack.json", street / "certificate")
    names = [run.name for run in neighbors(street / "certificate", read_run(street / "certificate"))]
    assert names == ["attack"]


@pytest.mark.parametrize(
    "change",
    [
        {"sigma": 0.4},
        {"sigma_per_feature": [0.2, 0.4, 0.4, 0.4]},
        {"action_sigma": 0.1},
        {"stochastic": True},
        {"scope": "l2 per step"},
        {"task": "cartpole-1"},
        {"agent_sha256": "hash of another"},
        {"max_steps": 50},
    ],
    ids=lambda change: next(iter(change)),
)
def test_runs_match_that_differ_in_nothing_that_names_the_setup(street, change):
    """Planted: one of two attacks is on another setup; where both are, they match again."""
    one = read_json(street / "attack" / "attack.json") | {"max_steps": 200}
    write_json(street / "attack" / "attack.json", one)
    shutil.copytree(street / "attack", street / "other")
    runs = [read_run(street / name) for name in ("attack", "other")]
    assert runs[0].matches(runs[1])
    write_json(street / "other" / "attack.json", one | change)
    runs[1] = read_run(street / "other")
    assert not runs[0].matches(runs[1])
    assert not runs[1].matches(runs[0])
    write_json(street / "attack" / "attack.json", one | change)
    assert read_run(street / "attack").matches(runs[1])


def test_the_measured_baseline_of_a_task_is_that_of_its_plain_return_without_noise_on_actions():
    run_here = {"task": "cartpole-1", "block_size": 8}
    assert _find_baseline(run_here, None) == BASELINES["cartpole-1"]
    for change in ({"gamma": 0.9}, {"action_sigma": 0.1}, {"task": "another"}, {"block_size": None}):
        assert _find_baseline(run_here | change, None) is None, change


def test_a_page_shows_a_few_neighbors(street, monkeypatch):
    shown = []
    monkeypatch.setattr(
        "surefoot.runs.finish.write_report", lambda runs, path: shown.append([run.name for run in runs])
    )
    for number in range(MOST_NEIGHBORS + 3):
        shutil.copytree(street / "attack", street / f"attack-{number}")
    write_run_report(street / "certificate")
    assert shown[0][0] == "certificate"
    assert len(shown[0]) == 1 + MOST_NEIGHBORS
    write_run_report(street / "attack-on-another")
    assert shown[1] == ["attack-on-another"]


# --- names and setups of runs -----------------------------------------------------------------------------------------


# What every certified run has in common.
NOT_IN_NAMES = {"purpose", "n_envs", "episodes_per_env", "attacker", "budget", "scope", "channels"}
NOT_IN_NAMES |= {"deployed_noise"}  # of fresh episodes, which no run directory keeps


def test_runs_that_differ_have_names_that_differ():
    from surefoot.play.tasks import discounted

    plans = [
        BASE,
        replace(BASE, seed=1),
        replace(BASE, n_episodes=9),
        replace(BASE, noise=Noise.of(0.3)),
        replace(BASE, noise=Noise.of([0.2, 0.2, 0.2, 0.3])),
        replace(BASE, per_step=True),
        replace(BASE, device="cuda"),
        replace(BASE, task=discounted(TASK, 0.9)),
        replace(BASE, task=discounted(TASK, 0.8)),
        replace(BASE, policy=replace(balancer(), name="other")),
        replace(BASE, n_episodes=8, draws_per_seed=2),
        replace(BASE, n_episodes=8, draws_per_seed=4),
        replace(BASE, luck="0"),
        replace(BASE, luck="0,2"),
    ]
    names = [run_name(plan) for plan in plans]
    assert len(set(names)) == len(plans)
    varied = {name for name in vars(BASE) if any(getattr(plan, name) != getattr(BASE, name) for plan in plans)}
    assert varied | NOT_IN_NAMES == set(vars(BASE)), "what a run may differ in is in its name, or in none"
    grids = [
        GRID,
        replace(GRID, method="random"),
        *(replace(GRID, base=plan) for plan in (plans[1], plans[2], plans[3])),
    ]
    assert len({grid.name for grid in grids}) == len(grids)


def test_attacks_on_other_channels_have_other_folders():
    car = Plan(task=get_task("mountain-car"), policy=actor_with_critic(), noise=Noise.of(0.2, 0.1), n_episodes=4)
    names = set()
    for channels in (("observations",), ("actions",), ("observations", "actions")):
        names.add(AttackGrid(base=replace(car, channels=channels), budgets=(0.1,), method="random").name)
    assert len(names) == 3


def test_another_goal_is_another_setup(tmp_path):
    """Bets are made for their goal: with another one they would be made on returns that were seen."""
    query = Query(budgets=(0.0, 0.2), confidence=0.9)
    made = certified_run(BASE, query, tmp_path, goal=StoppingRule(budget=0.2, tolerance=0.5), figure=False)
    assert made.confidence == 0.9
    assert made.method_selection["tolerance"] == 0.5
    for goal in (StoppingRule(budget=0.1, tolerance=0.5), StoppingRule(budget=0.2, tolerance=0.4), None):
        with pytest.raises(InputError, match="another setup"):
            certified_run(BASE, query, tmp_path, goal=goal, figure=False)
    again = certified_run(BASE, query, tmp_path, goal=StoppingRule(budget=0.2, tolerance=0.5), figure=False)
    assert again.lower.tolist() == made.lower.tolist()


def test_what_was_typed_and_what_a_run_is_held_against_are_written_down(tmp_path):
    """By every function that writes a run."""
    baseline = Baseline(mean=7.0, sem=0.1, n_episodes=9, what="it", command="measure it")
    plan = replace(BASE, task=replace(TASK, name="short", baseline=baseline))
    query = Query(budgets=(0.0,))
    rule = StoppingRule(budget=0.2, tolerance=0.5)
    certified_run(plan, query, tmp_path / "certified", command="typed", figure=False)
    certified_run(plan, query, tmp_path / "sequential", goal=rule, command="typed", figure=False)
    attacked.attacked_run(AttackGrid(base=plan, budgets=(0.1,), method="random"), tmp_path / "attack", command="typed")
    for name in ("certified", "sequential", "attack"):
        notes = read_json(tmp_path / name / "run.json")
        assert (notes["command"], notes["baseline"]) == ("typed", baseline.to_json()), name
    notes = read_json(tmp_path / "sequential" / "run.json")
    assert (notes["goal"], notes["stopped"]) == (rule.to_json(), "all played")
    certify_returns(
        episodes(), query, require=Requirement(5.0, 0.1), out=tmp_path / "given", source="the column r", command="typed"
    )
    notes = read_json(tmp_path / "given" / "run.json")
    assert (notes["command"], notes["returns"], notes["required_budget"]) == ("typed", "the column r", 0.1)
    pair = {"A": plan, "B": replace(plan, seed=1)}
    compared.compared_run(pair, Question(confidence=0.95), tmp_path / "compared", command="typed")
    assert read_json(tmp_path / "compared" / COMPARISON_FILE)["command"] == "typed"


def test_a_run_that_found_blocks_says_that_it_was_resumed(tmp_path):
    run_share(BASE, Share(1, 2), tmp_path)
    certified_run(BASE, Query(budgets=(0.0,)), tmp_path, figure=False)
    assert read_json(tmp_path / "run.json")["resumed"] is True


def test_budgets_of_other_threats_are_not_shown_as_those_of_one_episode(tmp_path, monkeypatch):
    from surefoot.proof.shared_budget import SharedBudget

    taped = []
    monkeypatch.setattr(certified_module, "record_replay", lambda tracks, folder: taped.append(tracks))
    certified_run(BASE, Query(budgets=(0.3,)), tmp_path / "episode", required=0.3, record=True, figure=False)
    certified_run(BASE, Query(budgets=(0.3,), threat=SharedBudget(3)), tmp_path / "shared", record=True, figure=False)
    assert taped[0]["attacked"].budget == 0.3
    required = [read_json(tmp_path / name / "run.json")["required_budget"] for name in ("episode", "shared")]
    assert required == [0.3, None]
    assert list(taped[1]) == ["quiet"]


def test_no_attack_is_recorded_where_it_is_one_on_actions(tmp_path):
    certificate = certified_run(BASE, Query(budgets=(0.3,)), tmp_path, figure=False)
    assert list(certified_module._plan_tracks(BASE, certificate, 0.3)) == ["quiet", "attacked"]
    noisy = replace(certificate, metadata={**certificate.metadata, "action_sigma": 0.1})
    assert list(certified_module._plan_tracks(BASE, noisy, 0.3)) == ["quiet"]
