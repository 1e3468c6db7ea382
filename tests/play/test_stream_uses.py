"""Who draws from which seed stream: every place that names one, in one table.

A certificate is void if its episodes share random numbers with those that chose its sigma, its weights or its attack,
and no number of a run shows that. So the sources are read: a new place, or one that names another seed or purpose,
fails here until it is entered in the table. Before you enter one, ask whose random numbers these were until now.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from surefoot.play.streams import Purpose

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "study", "zoo")
MAKERS = {"seed_sequence", "block_seeds", "policy_seeds", "training_seeds", "direction_seeds"}
VALIDATIONS = {"validate", "run_validation"}
DEFAULT = {"seed": "0", "purpose": "()"}  # of a Plan that does not say

# By file and function: the seed and purpose of a plan, the number of a validation, the purposes that are named, and the
# streams that are made. A plan without purpose is a certificate's, and another's where ``replace`` gives it a purpose.
USES = {
    # The trial of a vector simulator: nothing of it is kept.
    "src/surefoot/play/envs/vector_trial.py Tried.run": ["seed_sequence(0, number, 0)"],
    # Episodes, under attack or not.
    "src/surefoot/api/setup.py plan_run": ["Plan: 0, ()"],  # and then the seed that was given, or its own
    "src/surefoot/api/compared_agents.py _plan_agent": ["Plan: 0, ()"],  # and then a seed of both agents
    # Pairs share their seed; agents that draw their actions get the next one.
    "src/surefoot/api/compared_agents.py _on_same_seeds": ["replace: seed seed", "replace: seed seed_b"],
    "src/surefoot/api/plan.py _forecast_pilot": ["replace: purpose (Purpose.PILOT,)", "(Purpose.PILOT,)"],
    "src/surefoot/runs/rollout.py rollout": [
        "Plan: 0, () if attacker is None else (Purpose.ATTACK,)",
        "(Purpose.ATTACK,)",
    ],
    "src/surefoot/runs/attacked.py AttackGrid.twin": ["replace: purpose (Purpose.ATTACK,)", "(Purpose.ATTACK,)"],
    # For people to look at, like the recorded episode, and no certificate reads them.
    "src/surefoot/api/faults.py _clean_episodes": ["replace: purpose (Purpose.TAPED,)", "(Purpose.TAPED,)"],
    "src/surefoot/runs/taped_episode.py _record_tape": ["replace: purpose (Purpose.TAPED,)", "(Purpose.TAPED,)"],
    "src/surefoot/attacks/value_gaps.py default_lambdas": ["(Purpose.VALUE_GAPS,)", "replace: purpose purpose"],
    "src/surefoot/attacks/actions.py find_push": ["replace: purpose (Purpose.VALUE_GAPS,)", "(Purpose.VALUE_GAPS,)"],
    # What an attacker learns from, and what it is chosen on: never what it is measured on.
    "src/surefoot/attacks/learning.py AttackLearner.__init__": [  # block 1: episodes of iteration 0 are all of block 0
        "block_seeds(plan.seed, (Purpose.ATTACK_TRAINING, 0), 1)",
        "(Purpose.ATTACK_TRAINING, 0)",
    ],
    "src/surefoot/attacks/learning.py AttackLearner.collect": [
        "replace: purpose (Purpose.ATTACK_TRAINING, self.iteration)",
        "(Purpose.ATTACK_TRAINING, self.iteration)",
    ],
    "src/surefoot/attacks/learning.py run_recorded": ["block_seeds(plan.seed, plan.purpose, 0)"],
    "src/surefoot/attacks/learning.py _selection_mean": [
        "replace: purpose (Purpose.ATTACK_SELECTION, number)",
        "(Purpose.ATTACK_SELECTION, number)",
    ],
    "src/surefoot/attacks/learning_flips.py _try_round": [
        "replace: purpose (Purpose.ATTACK_SELECTION, number)",
        "(Purpose.ATTACK_SELECTION, number)",
    ],
    "src/surefoot/runs/strongest.py choose_strongest": [
        "replace: purpose (Purpose.ATTACK_SELECTION, LEARNING_ROUND)",
        "(Purpose.ATTACK_SELECTION, LEARNING_ROUND)",
    ],
    "src/surefoot/attacks/composed.py _episode_direction": ["direction_seeds(seed, episode)"],
    "src/surefoot/play/baseline.py find_baseline.score_candidates": ["(Purpose.BASELINE_SEARCH, number)"],
    "src/surefoot/play/baseline.py find_baseline": ["(Purpose.BASELINE,)"],
    "src/surefoot/play/baseline.py _plan_wave": ["Plan: seed, purpose"],
    "src/surefoot/play/loop.py play_block": [
        "block_seeds(plan.seed, plan.purpose, index)",
        "policy_seeds(plan.seed, plan.purpose, index)",
        # All other streams of a draw: see draw_seeds.
        "policy_seeds(plan.seed, (Purpose.DRAWS, draw), index)",
        "(Purpose.DRAWS, draw)",
    ],
    "src/surefoot/play/plan.py Plan.__post_init__": ["seed_sequence(self.seed)"],
    "src/surefoot/play/plan.py seeded_plan": ["replace: seed seed"],  # that was given, or its own
    "src/surefoot/verification/play_again.py load_plan": ["Plan: int(setup['seed']), ()"],
    "src/surefoot/verification/attack_again.py with_recorded_attack": [
        "replace: purpose (Purpose.ATTACK,)",  # recorded so, and none of a certificate
        "(Purpose.ATTACK,)",
    ],
    "src/surefoot/verification/play_again.py run_fresh": [
        "(Purpose.VERIFICATION,)",
        # Or that of certificates, where draws of one seed or luck need it: the seed is new in any case.
        "replace: seed secrets.randbits(127), purpose purpose",
    ],
    "study/measure.py unattacked": ["Plan: SEED, ()"],
    "study/mujoco.py run": ["Plan: 0, ()"],
    "study/optimal_attack.py ledge_plan": ["Plan: seed, ()"],
    "study/optimal_attack.py learned": ["replace: purpose (Purpose.ATTACK,)", "(Purpose.ATTACK,)"],
    "study/step_wise.py voted": ["seed_sequence(0, 0)", "seed_sequence(0, 1)"],
    # Training, and what selects weights and sigmas.
    "src/surefoot/play/envs/noisy.py NoisyObservation._reseed_noise": ["seed_sequence(seed, WRAPPER)"],
    "src/surefoot/play/envs/actuator.py ActuatorNoise.__init__": ["seed_sequence(seed, ACTUATOR)"],
    "src/surefoot/train/selection.py run_validation": [
        "Plan: run.seed, (Purpose.VALIDATION, number)",
        "(Purpose.VALIDATION, number)",
    ],
    "src/surefoot/train/selection.py validate": ["run_validation: number"],
    "src/surefoot/train/selection.py best_sigma": ["Plan: seed, (Purpose.PILOT,)", "(Purpose.PILOT,)"],
    "src/surefoot/train/certified_eval.py CertifiedEvalCallback._evaluate": [
        "Plan: self.seed, (Purpose.VALIDATION, number)",
        "(Purpose.VALIDATION, number)",
    ],
    "src/surefoot/train/off_policy.py ValidationCallback._on_step": ["validate: number"],
    "src/surefoot/train/off_policy.py train_off_policy": ["replace: seed run.seed + number"],
    "src/surefoot/train/ppo.py PpoLearner.__init__": ["training_seeds(seed, 0)"],
    "src/surefoot/train/ppo.py train_ppo": ["training_seeds(run.seed, learner.iteration)"],
    "src/surefoot/train/ppo.py PpoProgress._validate": ["validate: learner.iteration"],
    # the iteration after the last one, which no candidate has
    "src/surefoot/train/ppo.py PpoProgress.validate_teacher": ["run_validation: number"],
    "src/surefoot/train/ppo.py _can_step_after_end": ["training_seeds(0, 0)"],
    "zoo/training/polish.py polish": ["validate: 0"],  # the judge's; rounds of the search count from 1
    "zoo/training/polish.py search_numbers": ["training_seeds(run.seed, 0)", "run_validation: number"],
    "zoo/training/polish.py observe_features": ["training_seeds(seed, 0)"],
    "zoo/training/atari.py validate_loop": ["validate: curve.steps"],
    "zoo/training/atari.py Emulators.__init__": ["training_seeds(seed, first_step)"],
    "zoo/training/q_learning.py QLearner.__init__": ["training_seeds(seed, 0)"],
    "zoo/training/student.py StudentLearner.__init__": ["training_seeds(seed, 0)"],
    "zoo/build.py run_selection": ["Plan: 0, (Purpose.SELECTION,)", "(Purpose.SELECTION,)"],
}


def uses_of(source: str) -> dict[str, list[str]]:
    """Return every use of a seed stream in a module, by the function it is in."""
    found: dict[str, list[str]] = {}
    for place, node in _within(ast.parse(source), ""):
        said = _said(node)
        if said is not None:
            found.setdefault(place, []).append(said)
    return found


def _within(tree: ast.AST, place: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield every node with the dotted name of the class and function that it is in."""
    for node in ast.iter_child_nodes(tree):
        own = f"{place}.{node.name}".lstrip(".") if isinstance(node, ast.FunctionDef | ast.ClassDef) else place
        yield own, node
        yield from _within(node, own)


def _said(node: ast.AST) -> str | None:
    """Return what a node says of streams, None if nothing."""
    if isinstance(node, ast.Tuple) and any(_is_purpose(part) for part in node.elts):
        return ast.unparse(node)
    if not isinstance(node, ast.Call):
        return None
    name = ast.unparse(node.func).rpartition(".")[2]
    given = {word.arg: ast.unparse(word.value) for word in node.keywords}
    if name == "Plan":
        return "Plan: {seed}, {purpose}".format(**DEFAULT | given)
    if name == "replace" and given.keys() & DEFAULT.keys():
        return "replace: " + ", ".join(f"{key} {given[key]}" for key in DEFAULT if key in given)
    if name in VALIDATIONS and "number" in given:
        return f"{name}: {given['number']}"
    return ast.unparse(node) if name in MAKERS else None


def _is_purpose(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Purpose"


def all_uses() -> dict[str, list[str]]:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return {
        f"{path.relative_to(ROOT)} {place}": said
        for path in paths
        if path.name != "streams.py"
        for place, said in uses_of(path.read_text(encoding="utf-8")).items()
    }


def test_every_use_of_a_seed_stream_is_the_one_in_the_table():
    found = all_uses()
    changed = {place: said for place, said in found.items() if USES.get(place) != said}
    assert changed == {}, "not in the table, or not so"
    assert set(USES) - set(found) == set(), "in the table, and gone"


def test_every_purpose_of_a_plan_is_somebodys():
    named = {Purpose[name] for said in USES.values() for one in said for name in re.findall(r"Purpose\.(\w+)", one)}
    assert named == set(Purpose) - {Purpose.TRAINING, Purpose.DIRECTION}  # those two have makers of their own


HONEST = """
def pilot(plan, seed):
    play(replace(plan, purpose=(Purpose.PILOT,)))
    return Plan(task=task, seed=seed)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("replace(plan, purpose=(Purpose.PILOT,))", "plan"),
        ("Purpose.PILOT", "Purpose.ATTACK"),
        ("(Purpose.PILOT,)", "()"),
        (", seed=seed", ""),
        ("seed=seed", "seed=0"),
        ("def pilot", "def other"),
        ("return Plan", "block_seeds(seed, (), 0)\n    return Plan"),
    ],
)
def test_planted_another_stream_is_noticed(old, new):
    assert uses_of(HONEST) == {"pilot": ["replace: purpose (Purpose.PILOT,)", "(Purpose.PILOT,)", "Plan: seed, ()"]}
    assert uses_of(HONEST.replace(old, new)) != uses_of(HONEST)
