"""``certify_run`` and its kin from Python: what the commands do, with arguments in place of options."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import surefoot
from surefoot.agents.files import default_agent
from surefoot.api import plan as plan_calls
from surefoot.api.attack import attack_grid, attack_share
from surefoot.api.certify import can_afford_baseline, certify_share
from surefoot.api.query import Requirement, stopping_rule, threat_of
from surefoot.api.returns import certify_returns
from surefoot.api.setup import as_processes, keep_on_interrupt, plan_run
from surefoot.cli import main as cli
from surefoot.cli.main import build_parser
from surefoot.cli.messages import in_options
from surefoot.episodes import Baseline
from surefoot.errors import InputError, Interrupted
from surefoot.files import read_json
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.workers import Processes
from surefoot.proof.query import Norm
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.step_budget import StepBudget
from surefoot.proof.stopping import StoppingRule
from surefoot.proof.threats import EPISODE
from surefoot.runs.read import neighbors, read_run
from surefoot.runs.shares import Share
from toys import actor_with_critic, balancer, short_pole

AGENT = "cartpole-1-s0.2"


pytestmark = pytest.mark.usefixtures("own_folder")


def test_a_run_is_that_of_the_command(capsys):
    run = surefoot.certify_run("cartpole-1", n_episodes=60, require=(100, 0.2), out="python")
    words = "certify cartpole-1 --episodes 60 --require 100@0.2 --out command --workers 1 --json"
    assert cli.main(words.split()) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("require") == {"mean": 100, "budget": 0.2, "proved": True}
    assert run.certificate.to_json() == printed == json.loads(Path("python/certificate.json").read_text())
    assert (run.proved, run.directory, run.task.name) == (True, Path("python"), "cartpole-1")
    assert {path.name for path in Path("python").iterdir()} == {path.name for path in Path("command").iterdir()}


def test_a_requirement_that_is_not_met_is_not_proved():
    run = surefoot.certify_run(short_pole(30), balancer(), sigma=0.2, n_episodes=40, require=(29.9, 0.3))
    assert not run.proved
    assert 0.3 in run.certificate.budgets


def test_what_a_budget_covers_is_what_was_asked_for():
    assert threat_of() == EPISODE
    assert threat_of(per_step=True) == StepBudget()
    assert threat_of(n_shared_episodes=5) == SharedBudget(5, certain=False)
    assert threat_of(n_shared_episodes=5, certain=True) == SharedBudget(5, certain=True)


def test_a_sequential_run_stops_when_its_rule_says_so():
    stop = StoppingRule(budget=0.2, require=60.0)
    run = surefoot.certify_run("cartpole-1", stop=stop, n_episodes=5_000, require=(60, 0.2))
    assert run.proved
    assert run.certificate.n_episodes < 5_000
    assert run.directory.name.endswith("-sequential")
    with pytest.raises(InputError, match="thresholds=, quantiles= and cvars= cannot be combined with a sequential run"):
        surefoot.certify_run("cartpole-1", stop=stop, query=surefoot.Query(budgets=(0.2,), quantiles=(0.5,)))


@pytest.mark.parametrize(
    ("query", "match"),
    [
        ({"thresholds": (100.0,)}, "thresholds=, quantiles= and cvars= cannot be combined"),
        ({"cvars": (0.1,)}, "thresholds=, quantiles= and cvars= cannot be combined"),
        ({"threat": StepBudget()}, "per_step=, n_shared_episodes= and norm= cannot be combined"),
        ({"threat": SharedBudget(3)}, "per_step=, n_shared_episodes= and norm= cannot be combined"),
        ({"norm": Norm(name="linf", coordinates=4, observations=30)}, "n_shared_episodes= and norm= cannot be"),
        ({"method": "band"}, 'a sequential run is certified by method="sequential", got band'),
    ],
)
def test_what_a_sequential_run_cannot_answer_is_refused_before_it_runs(query, match, tmp_path):
    """One of these alone is enough: its bets are about one l2 budget of whole episodes."""
    stop = StoppingRule(budget=0.2, require=5.0)
    asked = surefoot.Query(**{"budgets": (0.2,), **query})
    with pytest.raises(InputError, match=match):
        surefoot.certify_run(short_pole(30), balancer(), sigma=0.2, stop=stop, query=asked, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"tol_budget": 0.1}, "tol_budget= is the budget of tol=; give tol= too"),
        ({"max_episodes": 10}, "max_episodes= needs a reason to stop"),
        ({"tol": 1.0, "tol_budget": 0.1, "require": Requirement(5.0, 0.2)}, "give the same, or one"),
    ],
)
def test_rules_that_cannot_be_meant(options, match):
    with pytest.raises(InputError, match=match):
        stopping_rule(0.2, **options)
    assert stopping_rule(0.2, require=Requirement(5.0, 0.3)) is None
    with pytest.raises(InputError, match="a budget per step is not shared"):
        threat_of(per_step=True, n_shared_episodes=2)


def test_an_attack_names_the_certificate_that_it_contradicts():
    """Planted: a certificate that claims more than any agent reaches."""
    surefoot.certify_run("cartpole-1", n_episodes=60, seed=1, out="deep/certified")
    attack = {"sigma": 0.2, "budgets": [0.1, 0.2], "method": "random", "n_episodes": 30, "out": "deep/a"}
    honest = surefoot.attack("cartpole-1", AGENT, **attack)
    assert honest.compared_with == (Path("deep/certified/certificate.json"),)
    assert (honest.contradictions, honest.directory) == ((), Path("deep/a"))
    written = Path("deep/certified/certificate.json")
    content = json.loads(written.read_text())
    content["lower"] = [200.0 for _ in content["lower"]]
    content["upper"] = [200.0 for _ in content["lower"]]
    written.write_text(json.dumps(content))
    wrong = surefoot.attack("cartpole-1", AGENT, **attack)
    assert [(one.certificate, one.inconsistency.budget) for one in wrong.contradictions] == [
        (written, 0.1),
        (written, 0.2),
    ]
    assert np.array_equal(wrong.mean, honest.mean)


def test_an_attack_on_shorter_episodes_contradicts_no_certificate_of_longer_ones():
    """Cut off after 50 steps, CartPole has returns of 50 at most: that is no attack's doing."""
    task = surefoot.make_task("CartPole-v1")
    balance = surefoot.as_policy("cartpole-1-s0.2", task.spaces)
    at = surefoot.Query(budgets=[0.01])
    surefoot.certify_run(task, balance, sigma=0.05, query=at, n_episodes=60, out="cut/certified")
    given = {"sigma": 0.05, "budgets": [0.01], "method": "random", "n_episodes": 20}
    shorter = surefoot.make_task("CartPole-v1", max_steps=50)
    cut = surefoot.attack(shorter, balance, **given, out="cut/shorter")
    assert (cut.compared_with, cut.contradictions) == ((), ())
    assert [run.name for run in neighbors(Path("cut/certified"), read_run(Path("cut/certified")))] == []
    whole = surefoot.attack(task, balance, **given, out="cut/whole")
    assert (whole.compared_with, whole.contradictions) == ((Path("cut/certified/certificate.json"),), ())
    assert [run.name for run in neighbors(Path("cut/certified"), read_run(Path("cut/certified")))] == ["whole"]
    with pytest.raises(InputError, match="is about another task, step limit, agent or sigma than this attack"):
        surefoot.attack(shorter, balance, **given, certificate="cut/certified", out="cut/named")
    assert not Path("cut/named").exists()  # before hours of attacks


def test_what_is_kept_is_said_by_the_interrupt():
    surefoot.certify_run("cartpole-1", n_episodes=60, out="run")
    with pytest.raises(Interrupted, match="60 episodes are kept in run"), keep_on_interrupt(Path("run")):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt) as stopped, keep_on_interrupt(Path("nothing")):
        raise KeyboardInterrupt
    assert not isinstance(stopped.value, Interrupted)


def test_as_many_processes_as_the_machine_keeps_busy(monkeypatch):
    monkeypatch.setattr("surefoot.api.setup.usable_cores", lambda: 7)
    assert as_processes(None) == Processes(7, isolated=True)
    assert as_processes(3) == Processes(3, isolated=True)
    assert as_processes(None, 0.5) == Processes(2, isolated=False)
    workers = object()
    assert as_processes(workers) is workers


@pytest.mark.parametrize(
    ("raised", "printed"),
    [
        ("choose another out=", "choose another --out"),
        ("give n_stack=3, or out=", "give --n-stack 3, or --out"),
        ("use allow_pickle=True (if you trust it)", "use --allow-pickle (if you trust it)"),
        ('use method="adaptive".', "use --method adaptive."),
        ("use device='cpu'", "use --device cpu"),
        ("give reward_range=(LOW, HIGH), or floor=F", "give --reward-range LOW,HIGH, or --floor F"),
        ("give wrappers=['a:B={\"c\": 1}'] to it", "give --wrapper 'a:B={\"c\": 1}' to it"),
        ("n_episodes= must be at least 1", "--episodes must be at least 1"),
        ("give environment=module:ID.", "give --env module:ID."),
        ("smooth(agent, batched=True)", "smooth(agent, batched=True)"),  # no option
        ("Spaces(shape=(4,))", "Spaces(shape=(4,))"),  # the option of another command
        ("the wrapper ClipReward={} and camera=0.1", "the wrapper ClipReward={} and camera=0.1"),
    ],
)
def test_arguments_are_told_as_options(raised, printed):
    parser = build_parser().parse_args(["attack", "cartpole-1"]).parser
    if raised.startswith("give environment"):
        parser = build_parser().parse_args(["verify", "run"]).parser
    assert in_options(raised, parser) == printed


def test_returns_are_not_written_next_to_the_episodes_of_a_run():
    """Also of one that was interrupted, which has no certificate yet; other returns may replace returns."""
    episodes = surefoot.Episodes.from_returns([9.0, 10.0] * 50, sigma=0.1, floor=0, ceiling=10)
    query = surefoot.Query(budgets=(0.0, 0.1), method="band")
    for _ in range(2):
        certify_returns(episodes, query, out=Path("returns"))
    Path("run").mkdir()
    Path("run/setup.json").write_text("{}")
    with pytest.raises(InputError, match="run holds a run of its own; choose another out="):
        certify_returns(episodes, query, out=Path("run"))
    assert [path.name for path in Path("run").iterdir()] == ["setup.json"]


def test_no_attack_and_no_comparison_is_written_over_a_run(tmp_path):
    """Its ``run.json`` would be that of the attack, and its certificate would fail verification."""
    folder = tmp_path / "run"
    given = {"sigma": 0.1, "n_episodes": 4, "out": folder}
    surefoot.certify_run(short_pole(10), AGENT, **given)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for write in (
        lambda: surefoot.attack(short_pole(10), AGENT, **given, method="random", budgets=[0.1]),
        lambda: surefoot.attack(short_pole(10), AGENT, **given, method="learned", budgets=[0.1], minutes=9.0),
        lambda: surefoot.compare(AGENT, AGENT, short_pole(10), **given),
    ):
        with pytest.raises(InputError, match="run holds a run of its own; choose another out="):
            write()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_baseline_of_an_environment_is_measured_where_that_is_cheap(tmp_path):
    """It marks what is uninformative, in the printed table and in the page; planted: a short run has none unasked."""
    task = surefoot.make_task("CartPole-v1", max_steps=60)
    cheap = {"agent": lambda seen: int(seen[2] + seen[3] > 0), "sigma": 0.1, "workers": 1}
    asked = surefoot.certify_run(task, **cheap, n_episodes=100, baseline=True, out=tmp_path / "asked")
    assert asked.task.baseline.n_episodes == 400
    assert 20 < asked.task.baseline.mean < 60
    assert read_json(tmp_path / "asked" / "run.json")["baseline"]["mean"] == asked.task.baseline.mean
    assert "open-loop baseline" in (tmp_path / "asked" / "report.html").read_text(encoding="utf-8").lower()
    unasked = surefoot.certify_run(task, **cheap, n_episodes=100, out=tmp_path / "unasked")
    assert unasked.task.baseline is None


def test_a_baseline_is_measured_once(tmp_path, monkeypatch):
    """A run that is finished has it; the call that measured it is written down, and its workers did it."""
    asked = []
    found = Baseline(mean=7.0, sem=0.1, n_episodes=9, what="it", command="typed")
    monkeypatch.setattr("surefoot.api.certify.find_baseline", lambda task, **how: asked.append(how) or found)
    task = replace(short_pole(10), name="short", baseline=None)
    given = {"sigma": 0.1, "n_episodes": 4, "baseline": True, "out": tmp_path / "run", "command": "typed", "workers": 3}
    for _ in range(2):
        assert surefoot.certify_run(task, AGENT, **given).task.baseline == found
    assert [(how["workers"].n, how["command"]) for how in asked] == [(3, "typed")]


def test_which_runs_can_afford_a_baseline(tmp_path):
    task = surefoot.make_task("CartPole-v1", max_steps=60)
    plan = Plan(task=task, policy=balancer(), noise=Noise.of(0.1), n_episodes=10_000)
    assert can_afford_baseline(plan)
    for change in (
        {"n_episodes": 1_000},
        {"task": replace(task, scoring=replace(task.scoring, gamma=0.9))},
        {"task": replace(task, baseline=Baseline(mean=1.0, sem=0.1, n_episodes=9, what="it", command="it"))},
        {"task": replace(task, backend=replace(task.backend, fixed_rows=True))},
    ):
        assert not can_afford_baseline(replace(plan, **change)), change
    with pytest.raises(InputError, match="baseline= is measured without a discount and without noise on actions"):
        surefoot.certify_run(
            replace(task, scoring=replace(task.scoring, gamma=0.9)),
            balancer(),
            sigma=0.1,
            n_episodes=50,
            baseline=True,
            out=tmp_path / "run",
        )
    car = replace(surefoot.get_task("mountain-car"), baseline=None)
    noisy = {"sigma": 0.2, "action_sigma": 0.3, "n_episodes": 50, "baseline": True, "out": tmp_path / "run"}
    with pytest.raises(InputError, match="baseline= is measured without a discount and without noise on actions"):
        surefoot.certify_run(car, actor_with_critic(), **noisy)


# --- agents that are code ---------------------------------------------------------------------------------------------


def act(seen):
    return 0


def attack_at(task, budgets, out):
    return surefoot.attack(task, **CODE, method="random", budgets=budgets, out=out)


CODE = {"agent": act, "sigma": 0.1, "n_episodes": 4}
WRITERS = {
    "certify": ("", lambda task, out: surefoot.certify_run(task, **CODE, out=out)),
    "attack": ("B0.1", lambda task, out: attack_at(task, [0.1], out)),
    "attack, second budget": ("B0.2", lambda task, out: attack_at(task, [0.1, 0.2], out)),
    "attack, twins": ("unattacked", lambda task, out: attack_at(task, [0.1], out)),
    "compare, A": ("A", lambda task, out: surefoot.compare(act, AGENT, task, sigma=0.1, n_episodes=4, out=out)),
    "compare, B": ("B", lambda task, out: surefoot.compare(AGENT, act, task, sigma=0.1, n_episodes=4, out=out)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_function_goes_on_with_episodes_of_an_agent_without_a_hash(name, tmp_path):
    """They may be those of another function of the same name, which the setup cannot tell."""
    inside, call = WRITERS[name]
    place = tmp_path / "run" / inside
    place.mkdir(parents=True)
    (place / "setup.json").write_text("{}")
    with pytest.raises(InputError, match="may hold episodes of another act: agents that are code have no hash"):
        call(short_pole(10), tmp_path / "run")
    assert [path.name for path in place.iterdir()] == ["setup.json"]


def test_no_share_is_run_of_an_agent_without_a_hash(tmp_path):
    grid = attack_grid(
        short_pole(10),
        **CODE,
        budgets=[0.1],
        method="random",
        lambdas=None,
        noise_samples=4,
        seed=0,
        device="cpu",
        workers=1,
    )
    for run in (
        lambda: certify_share(short_pole(10), **CODE, share=Share(1, 1), out=tmp_path / "run"),
        lambda: attack_share(tmp_path / "run", grid, Share(1, 1)),
    ):
        with pytest.raises(InputError, match="blocks= needs an agent with a hash, and act is code"):
            run()
    assert not (tmp_path / "run").exists()


def test_a_share_of_an_attack_that_must_be_learned_first_runs_nothing(tmp_path):
    """Each share would train an attacker, or choose an attack, of its own."""
    options = {"budgets": [0.1], "sigma": 0.1, "lambdas": None, "noise_samples": 4, "seed": 0, "device": "cpu"}
    for method in ("learned", "strongest"):
        grid = attack_grid(short_pole(10), AGENT, method=method, n_episodes=4, workers=1, **options)
        with pytest.raises(InputError, match="shares of one run need one attacker"):
            attack_share(tmp_path / "run", grid, Share(1, 1))
    assert not (tmp_path / "run").exists()


def test_what_is_required_is_proved_from_the_bound_itself_on():
    certificate = surefoot.certify(
        surefoot.Episodes.from_returns([9.0] * 200, sigma=0.1, floor=0, ceiling=10), [0.0, 0.1]
    )
    for place, budget in enumerate((0.0, 0.1)):
        bound = float(certificate.lower[place])
        for mean, proved in ((bound, True), (np.nextafter(bound, 10), False)):
            assert surefoot.CertifiedRun(certificate=certificate, require=(mean, budget)).proved is proved


def test_returns_of_others_are_certified_at_the_budget_that_is_required():
    """Among those that hold simultaneously, and once where it is asked for anyway."""
    episodes = surefoot.Episodes.from_returns([9.0] * 200, sigma=0.1, floor=0, ceiling=10)
    query = surefoot.Query(budgets=(0.0, 0.1), method="dkw")
    for budget, budgets in ((0.05, [0.0, 0.05, 0.1]), (0.1, [0.0, 0.1])):
        run = certify_returns(episodes, query, require=Requirement(1.0, budget))
        assert run.certificate.budgets.tolist() == budgets
        assert run.proved


def test_no_pretrained_agent_is_taken_for_a_noise_that_differs_by_feature():
    """The least sigma alone would name one that was trained with other noise."""
    with pytest.raises(InputError, match="no pretrained agent for a sigma per feature; name one with agent="):
        plan_run(surefoot.get_task("cartpole-1"), None, sigma=[0.2, 0.2, 0.4, 0.2], n_episodes=4)


# --- sigmas that are compared -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigmas", [[(0.1, 0.2, 0.2, 0.2), (0.2, 0.2, 0.2, 0.2)], [(0.1, 0.2, 0.2, 0.2), 0.2]])
def test_no_sigma_is_selected_of_those_for_which_one_budget_means_different_things(sigmas):
    """Planted: of the same features with the same ratios, one budget is the same perturbations for both."""
    given = {"sigmas": sigmas, "pilot_episodes": 8}
    for select in (
        lambda: surefoot.tune(short_pole(10), balancer(), budget=0.2, n_episodes=8, out="tuned", **given),
        lambda: surefoot.plan(short_pole(10), balancer(), require=(1, 0.2), **given),
    ):
        with pytest.raises(InputError, match="sigmas= must be multiples of one another"):
            select()
    assert not Path("tuned").exists()
    multiples = [tuple(2 * sigma for sigma in sigmas[0]), sigmas[0]]
    tuned = surefoot.tune(
        short_pole(10), balancer(), budget=0.2, n_episodes=8, out="tuned", **given | {"sigmas": multiples}
    )
    assert len(tuned.forecasts) == 2


def test_processes_without_a_block_cost_nothing(monkeypatch):
    """Eight seconds of one process are not those of sixteen, of which fifteen had nothing to do."""
    clock = iter((100.0, 108.0))

    def play(plan, **_):
        return surefoot.Episodes.from_returns([9.0, 10.0] * 2, sigma=plan.noise.sigma, floor=0, ceiling=10)

    monkeypatch.setattr("surefoot.api.plan.play", play)
    monkeypatch.setattr("surefoot.api.plan.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    given = {"require": (1, 0.2), "sigmas": [0.2], "pilot_episodes": 4, "n_episodes": 300}
    (one,) = surefoot.plan(short_pole(10), balancer(), **given, workers=16, cores=3)
    assert (one.cost.core_seconds, one.cost.cores) == (2.0, 3)


def test_sigmas_that_are_compared_by_default_are_those_of_our_agents_or_shares_of_the_budget(monkeypatch):
    """Each once, and none without noise, with which nothing is certified."""
    ours = plan_calls._find_sigmas(surefoot.get_task("cartpole-1"))
    assert len(ours) == len(set(ours)) >= 3
    assert all(sigma > 0 and default_agent("cartpole-1", sigma) == f"cartpole-1-s{sigma:g}" for sigma in ours)
    assert plan_calls._sigmas_for(0.6) == [0.2, 0.3, 0.6]
    asked = []
    monkeypatch.setattr(plan_calls, "plan_run", lambda task, agent, *, sigma, **_: asked.append(sigma))
    for task, sigmas in (
        (surefoot.get_task("cartpole-1"), ours),
        (replace(short_pole(10), name="own"), [0.2, 0.3, 0.6]),
    ):
        asked.clear()
        plan_calls._pilot_plans(task, None, None, 0.6, 8, 0.95, None, "cpu", 1)
        assert asked == sigmas, task.name
