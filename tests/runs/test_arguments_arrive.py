"""Every argument of the functions that run episodes from Python arrives in the plan, the grid or the agent's lookup."""

import inspect
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

import surefoot
from stand_ins import Reached
from surefoot.api import attack as attack_curve
from surefoot.attacks.registry import Configuration, Method
from surefoot.attacks.victim import smoothing_of
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import Scope
from surefoot.play.plan import Plan
from surefoot.play.streams import Purpose
from surefoot.runs import rollout, taped_episode
from surefoot.runs.attacked import AttackGrid, Trial
from surefoot.runs.returns import read_returns
from surefoot.runs.taped_episode import attacked_plan
from toys import Spy, actor_with_critic, balancer, short_pole

TASK = short_pole(30)
BOTH = ("observations", "actions")


@pytest.fixture
def asked(monkeypatch):
    """Return what calls ``rollout`` and returns the plan, the workers, the progress and the lookup."""
    seen = {}

    def as_policy(agent, spaces):
        seen.update(agent=agent, spaces=spaces)
        return balancer()

    def play(plan, *, workers, progress=None):
        seen.update(plan=plan, workers=workers, progress=progress)
        raise Reached

    monkeypatch.setattr(rollout, "as_policy", as_policy)
    monkeypatch.setattr(rollout, "play", play)

    def ask(**options):
        with pytest.raises(Reached):
            rollout.rollout(TASK, "the agent", **{"sigma": 0.2, **options})
        return seen

    return ask


def test_without_options(asked):
    seen = asked(seed=0)
    plan = seen["plan"]
    assert (seen["agent"], seen["spaces"]) == ("the agent", TASK.spaces)
    assert (plan.task, plan.noise, plan.seed, plan.device, seen["workers"]) == (TASK, Noise.of(0.2), 0, "cpu", 1)


@pytest.mark.parametrize(
    ("option", "value", "attribute"),
    [("n_episodes", 7, "n_episodes"), ("seed", 5, "seed"), ("sigma", 0.4, "noise.sigma"), ("device", "cpu", "device")],
)
def test_what_is_run_arrives(asked, option, value, attribute):
    found = asked(**{option: value})["plan"]
    for name in attribute.split("."):
        found = getattr(found, name)
    assert found == value


def test_workers_and_progress_arrive(asked):
    said = []
    seen = asked(workers=3, progress_callback=lambda done, of: said.append((done, of)))
    seen["progress"](2, 4)
    assert seen["workers"] == 3
    assert said == [(2, 4)]


def rolled(monkeypatch, **options):
    """Return the plan of a rollout."""
    plans = []

    def play(plan, **_):
        plans.append(plan)
        raise Reached

    monkeypatch.setattr(rollout, "play", play)
    with pytest.raises(Reached):
        rollout.rollout(TASK, balancer(), **{"sigma": 0.2, **options})
    return plans[0]


def test_what_only_a_rollout_takes_arrives(monkeypatch):
    assert rolled(monkeypatch, n_envs=3).block_envs == 3
    assert rolled(monkeypatch, per_step=True).per_step
    assert rolled(monkeypatch).purpose == ()
    assert rolled(monkeypatch, sigma=[0.1, 0.2, 0.3, 0.4]).noise.features == (0.1, 0.2, 0.3, 0.4)
    named = rolled(monkeypatch, attacker="random", budget=0.7)
    assert (named.budget, named.purpose, named.noise.sigma) == (0.7, (Purpose.ATTACK,), 0.2)
    assert named.attacker.timing.budget == 0.7
    own = rolled(monkeypatch, attacker=named.attacker, budget=0.6, n_envs=3)
    assert (own.budget, own.purpose, own.attacker, own.block_envs) == (0.6, (Purpose.ATTACK,), named.attacker, 3)


def test_noise_on_actions_and_what_is_attacked_arrive_in_a_rollout(monkeypatch):
    monkeypatch.setattr(rollout, "play", lambda plan, **_: plan)
    agent, options = actor_with_critic(), {"sigma": 0.2, "action_sigma": 0.3, "seed": 0}
    assert rollout.rollout("mountain-car", agent, **options).noise == Noise.of(0.2, 0.3)
    for channel, channels in (("actions", ("actions",)), ("both", BOTH), (None, BOTH)):
        for attacker in ("random", Spy()):
            attacked = {"attacker": attacker, "budget": 0.5, "channel": channel}
            assert rollout.rollout("mountain-car", agent, **options, **attacked).channels == channels
    with pytest.raises(InputError, match="channel= says what an attacker perturbs: give one"):
        rollout.rollout("mountain-car", agent, **options, channel="both")


def test_what_only_an_attack_takes_arrives(monkeypatch):
    grids = []

    def run_grid(grid, folder, **_):
        grids.append(grid)
        raise Reached

    monkeypatch.setattr(attack_curve, "run_grid", run_grid)
    options = {"budgets": [0.3, 0.5], "sigma": 0.2, "noise_samples": 9, "lambdas": [0.1, 0.7], "method": "paper"}
    with pytest.raises(Reached):
        attack_curve.attack(TASK, balancer(), **options)
    (grid,) = grids
    assert (grid.budgets, grid.noise_samples, tuple(grid.lambdas)) == ((0.3, 0.5), 9, (0.1, 0.7))
    assert (grid.method, grid.base.noise.sigma, grid.base.purpose) == ("paper", 0.2, ())


def test_every_argument_of_attack_arrives_somewhere(monkeypatch, tmp_path):
    """In the grid, in what learns an attacker, or in what runs and writes; a new argument fails until it does."""
    given = {name: object() for name in inspect.signature(attack_curve.attack).parameters} | {"out": tmp_path / "run"}
    reached = {}

    def attack_grid(task, agent, **options):
        reached.update(task=task, agent=agent, **options)
        return "grid"

    def prepare_attacker(grid, minutes, folder, **options):
        assert (grid, options) == ("grid", {"workers": given["workers"]})
        reached.update(minutes=minutes, out=folder)
        return "with an attacker"

    def attack_into(folder, grid, **options):
        assert (grid, folder, options.pop("workers")) == ("with an attacker", given["out"], given["workers"])
        reached.update(progress_callback=options.pop("progress"), **options)
        return "curve"

    for stage in (attack_grid, prepare_attacker, attack_into):
        monkeypatch.setattr(attack_curve, stage.__name__, stage)
    assert attack_curve.attack(**given) == "curve"
    assert reached == given


@pytest.mark.parametrize(("name", "given"), [("certificate", "run"), ("record", True)])
def test_what_belongs_into_a_directory_is_refused_without_one(name, given, monkeypatch):
    """At once, not after an attacker has learned."""
    monkeypatch.setattr(attack_curve, "attack_grid", lambda *_, **__: pytest.fail("begun"))
    with pytest.raises(InputError, match=f"{name}= goes with out="):
        surefoot.attack(TASK, balancer(), budgets=[0.1], method="learned", **{name: given})


def test_every_field_of_a_configuration_is_that_of_its_grid(monkeypatch):
    """An attack is built of nothing else: what does not arrive is attacked as if it were not there."""
    seen = []
    monkeypatch.setattr(Method, "attacker", lambda self, chosen: seen.append(chosen) or Spy())
    car, policy, noise = surefoot.get_task("mountain-car"), actor_with_critic(), Noise.of(0.2, 0.3)
    push, learned = object(), object()
    base = Plan(task=car, policy=policy, noise=noise, n_episodes=4, channels=BOTH)
    grid = AttackGrid(
        base=base, budgets=(0.5,), lambdas=(0.7,), method="adaptive", noise_samples=9, push=push, attacker=learned
    )
    expected = {
        "task": car,
        "policy": policy,
        "budget": 0.4,
        "smoothing": smoothing_of(noise, 9),
        "noise": noise,
        "channels": BOTH,
        "per_step": False,
        "push": push,
        "lambda_q": 0.6,
        "attacker": learned,
    }
    plan = grid.plan(0.4, 0.6)
    assert {field.name: getattr(seen[-1], field.name) for field in fields(Configuration)} == expected
    assert (plan.budget, plan.purpose, plan.channels) == (0.4, (Purpose.ATTACK,), BOTH)
    stepwise = replace(base, noise=Noise.of(0.2), channels=("observations",), scope=Scope(per_step=True))
    replace(grid, base=stepwise)
    assert seen[-1].per_step
    # Of the strongest attack the method and its lambda are those of the lowest mean at the same budget.
    tried = [
        Trial(budget=0.5, method="paper", lambda_=0.1, mean=7.0),
        Trial(budget=0.5, method="paper", lambda_=0.3, mean=5.0),
    ]
    tried += [
        Trial(budget=0.4, method="paper", lambda_=0.4, mean=6.0),
        Trial(budget=0.6, method="paper", lambda_=0.2, mean=1.0),
    ]
    replace(grid, base=stepwise, method="strongest", trials=tuple(tried)).plan(0.5, None)
    assert seen[-1].lambda_q == 0.3


def test_the_attacker_of_a_run_is_the_one_in_its_directory(tmp_path, monkeypatch):
    """One that is given is kept there; planted: another one is there already, of a run that was killed after it."""

    class Kept:
        def __init__(self, sha256):
            self.sha256 = sha256

        def save(self, path):
            path.write_text(self.sha256)

    monkeypatch.setattr(attack_curve, "load_attacker", lambda path: Kept(path.read_text()))
    monkeypatch.setattr(attack_curve, "train_attacker", lambda *_: Kept("learned"))
    monkeypatch.setattr(Method, "attacker", lambda self, chosen: Spy())
    base = Plan(task=TASK, policy=balancer(), noise=Noise.of(0.2), n_episodes=4)
    grid = AttackGrid(base=base, budgets=(0.5,), method="learned")
    for _ in range(2):
        assert attack_curve.prepare_attacker(grid, 1.0, tmp_path).attacker.sha256 == "learned"
    given = replace(grid, attacker=Kept("given"))
    with pytest.raises(InputError, match="is another attacker than attacker=; leave that out, or choose another out="):
        attack_curve.prepare_attacker(given, 1.0, tmp_path)
    assert (tmp_path / "attacker.npz").read_text() == "learned"
    (tmp_path / "attacker.npz").unlink()
    for _ in range(2):
        assert attack_curve.prepare_attacker(given, 1.0, tmp_path).attacker.sha256 == "given"
    assert (tmp_path / "attacker.npz").read_text() == "given"
    assert attack_curve.prepare_attacker(given, 1.0, None).attacker.sha256 == "given"


def test_the_strongest_attack_is_looked_for_in_the_time_that_is_left(monkeypatch):
    """Half of two minutes is for learning; it took 30 seconds, so that 90 are left."""
    clock = iter((100.0, 130.0))
    spent = {}
    monkeypatch.setattr(attack_curve, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(attack_curve, "_can_learn", lambda plan: True)
    monkeypatch.setattr(attack_curve, "_with_attacker", lambda grid, minutes, *_: spent.update(minutes=minutes) or grid)
    monkeypatch.setattr(attack_curve, "choose_strongest", lambda grid, **how: spent.update(how))
    base = Plan(task=TASK, policy=balancer(), noise=Noise.of(0.2), n_episodes=4)
    grid = AttackGrid(base=base, budgets=(0.5,), method="strongest")
    attack_curve.prepare_attacker(grid, 2.0, None, workers=3)
    assert (spent["minutes"], spent["seconds"], spent["workers"].n) == (1.0, 90.0, 3)


def test_the_numbers_of_a_curve_are_those_of_its_summary():
    numbers = {"budgets": [0.1, 0.2], "mean": [[1.0, 2.0], [3.0, 4.0]], "sem": [[5.0, 6.0], [7.0, 8.0]]}
    numbers |= {"curve": [1.0, 3.0], "curve_sem": [5.0, 7.0], "lambdas": [0.0, 0.5]}
    numbers |= {"loss": [[9.0, 10.0], [11.0, 12.0]], "loss_sem": [[13.0, 14.0], [15.0, 16.0]]}
    numbers |= {"n_changed": [[17, 18], [19, 20]]}
    made = attack_curve._make_curve(numbers, ["a", "b"])
    for name in ("budgets", "mean", "sem", "loss", "loss_sem", "n_changed"):
        assert np.array_equal(getattr(made, name), numbers[name]), name
    assert made.lowest.tolist() == [1.0, 3.0]
    assert made.lowest_sem.tolist() == [5.0, 7.0]
    assert (made.lambdas, made.records, made.summary) == ((0.0, 0.5), ("a", "b"), numbers)


# --- a taped episode --------------------------------------------------------------------------------------------------


def test_the_attack_on_a_taped_episode_has_the_budget_and_the_noise_of_the_run():
    plan = Plan(task=TASK, policy=balancer(), noise=Noise.of(0.2), n_episodes=4, seed=9)
    under = attacked_plan(plan, 0.6)
    assert (under.budget, under.seed, under.noise) == (0.6, 9, plan.noise)
    assert under.attacker.smoothing.sigma == 0.2
    assert under.attacker.step == pytest.approx(0.6 / taped_episode.TRIES)
    assert attacked_plan(plan, 0.0) is None
    car = surefoot.get_task("mountain-car")
    slow = attacked_plan(Plan(task=car, policy=actor_with_critic(), noise=Noise.of(0.2), n_episodes=4), 0.6)
    assert (slow.attacker.timing.budget, slow.attacker.timing.steps) == (0.6, car.scoring.max_steps)


# --- returns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"sigma": 0.3}, "run with sigma 0.2, got sigma=0.3"),
        ({"sigma": 0.1}, "run with sigma 0.2, got sigma=0.1"),
        ({"floor": -1.0}, "run with floor 0.0, got floor=-1.0"),
        ({"floor": 1.0}, "run with floor 0.0, got floor=1.0"),
        ({"ceiling": 31.0}, "run with ceiling 30.0, got ceiling=31.0"),
        ({"ceiling": 29.0}, "run with ceiling 30.0, got ceiling=29.0"),
        ({"sigma": [0.2, 0.4]}, "other noise on some features"),
    ],
)
def test_what_is_said_of_a_record_and_is_not_so_is_refused(tmp_path, given, match):
    """Larger or smaller: both would be another claim about these episodes."""
    Episodes.from_returns([5.0, 6.0], sigma=0.2, floor=0, ceiling=30).save(tmp_path / "episodes.npz")
    silent = {"sigma": None, "floor": None, "ceiling": None}
    record, _ = read_returns(tmp_path / "episodes.npz", **silent)
    assert record.returns.tolist() == [5.0, 6.0]
    read_returns(tmp_path / "episodes.npz", sigma=0.2, floor=0.0, ceiling=30.0)
    with pytest.raises(InputError, match=match):
        read_returns(tmp_path / "episodes.npz", **silent | given)
