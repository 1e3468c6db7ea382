"""Forged certificates as data: each row changes an honest run, and says which check catches it.

A row is careless or thorough. A careless forger changes one thing and leaves the rest. A thorough one then makes
everything else agree: hash, setup.json, run.json, and the certificate itself, computed from the forged episodes.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.episodes import Episodes
from surefoot.files import read_json, read_npz
from surefoot.proof.query import certify, certify_per_step, certify_shared_budget
from surefoot.verification.recompute.run_files import Raw

BUDGETS = {"certificate.json": [0.0, 0.2, 0.4], "shared.json": [0.0, 0.5], "per-step.json": [0.0, 0.01]}


@dataclass(eq=False)
class Run:
    """The files of a run, to be changed: the certificate, the episode data, setup.json, run.json."""

    folder: Any
    name: str
    certificate: dict
    setup: dict
    arrays: dict
    written: dict
    notes: dict

    @classmethod
    def read(cls, folder):
        name = next(name for name in BUDGETS if (folder / name).exists())
        setup, arrays = read_npz(folder / "episodes.npz", "record")
        setup.pop("schema")
        setup.pop("processors", None)  # on which the blocks were run: not part of the setup, and may be missing
        notes = [read_json(folder / other) for other in (name, "setup.json", "run.json")]
        return cls(folder, name, notes[0], setup, {key: array.copy() for key, array in arrays.items()}, *notes[1:])

    def write(self):
        header = np.frombuffer(json.dumps({"schema": 1, **self.setup}).encode(), dtype=np.uint8)
        np.savez(self.folder / "episodes.npz", header=header, **self.arrays)
        for name, content in ((self.name, self.certificate), ("setup.json", self.written), ("run.json", self.notes)):
            (self.folder / name).write_text(json.dumps(content))  # whatever it is: NaN too

    def rehash(self):
        """Make hash, setup.json, run.json and the certificate's facts agree with the episode data."""
        raw = Raw(self.name, self.certificate, self.setup, self.arrays, None, None)
        self.certificate["record_sha256"] = raw.sha256()
        facts = ("sigma", "floor", "ceiling", "task", "agent", "agent_sha256", "seed")
        self.certificate |= {key: self.setup.get(key) for key in facts} | {"max_steps": self.setup.get("max_steps")}
        self.written = {"schema": 1, **self.setup}
        self.notes["agent_sha256"] = self.setup.get("agent_sha256")

    def recertify(self, method="paper"):
        """Compute the certificate from the forged episode data, with hash and notes that agree."""
        named = ("returns", "lengths", "reward_values", "reward_repeats")
        known = {key: self.arrays[key] for key in named if key in self.arrays}
        facts = {key: value for key, value in self.setup.items() if key not in ("sigma", "floor", "ceiling")}
        limits = {key: self.setup[key] for key in ("sigma", "floor", "ceiling")}
        facts["n_planned"] = len(known["returns"])
        episodes = Episodes(**{key: array.copy() for key, array in known.items()}, **limits, metadata=facts)
        kinds = {
            "certificate.json": lambda budgets: certify(episodes, budgets, method=method),
            "shared.json": lambda budgets: certify_shared_budget(episodes, budgets, 5),
            "per-step.json": lambda budgets: certify_per_step(episodes, budgets),
        }
        self.certificate = kinds[self.name](BUDGETS[self.name]).to_json()
        self.rehash()


def field(name, change):
    """A field of the certificate, and nothing else."""
    return lambda run: run.certificate.update({name: change(run.certificate.get(name))})


def setup(**changes):
    return lambda run: run.setup.update(changes)


def array(name, change):
    def forge(run):
        run.arrays[name] = change(run.arrays[name])

    return forge


def plus(more, at=slice(None)):
    def change(values):
        values = list(values)
        values[at] = [value + more for value in values[at]]
        return values

    return change


def best_first(returns):
    return np.sort(returns)[::-1].copy()


def one_better(returns):
    changed = returns.copy()
    worst = int(np.argmin(changed))
    changed[worst] = 200.0
    return changed


def swapped(returns):
    changed = returns.copy()
    other = int(np.flatnonzero(changed != changed[0])[0])
    changed[[0, other]] = changed[[other, 0]]
    return changed


def invented(run):
    run.arrays = {name: np.full_like(run.arrays[name], 200) for name in ("returns", "lengths")}


def fewer(run):
    run.arrays = {name: values[30:].copy() for name, values in run.arrays.items()}


def repeated(run):
    for values in run.arrays.values():
        values[60:90] = values[30:60]


def exchanged(run):
    for values in run.arrays.values():
        values[:60] = np.concatenate([values[30:60], values[:30]])


def blocks_of_one(run):
    run.setup.update(n_envs=1, block_size=1)
    invented(run)


def huge_ceiling(run):
    """A ceiling far away made any lower bound pass: a ten-billionth of the range was let through."""
    run.setup["ceiling"] = 1e13
    run.recertify("band")
    run.certificate["lower"] = [150.0 for _ in run.certificate["lower"]]


def extra_rewards(run):
    """Rewards that belong to no episode."""
    run.arrays["reward_values"] = np.append(run.arrays["reward_values"], 1.0)
    run.arrays["reward_repeats"] = np.append(run.arrays["reward_repeats"], 50)
    run.rehash()


def exchanged_rewards(run):
    """The rewards of two blocks exchanged, and their lengths with them."""
    for name in ("lengths", "reward_values", "reward_repeats"):
        values = run.arrays[name]
        values[:60] = np.concatenate([values[30:60], values[:30]])
    run.recertify()


def declared(run):
    """Whether only wins and losses can come selects the method: after looking, that would be choosing among two."""
    run.recertify("band")
    run.setup["binary"] = True
    run.rehash()


def smaller_rewards(run):
    run.arrays["reward_values"][0] -= 1e-3
    run.recertify()


E_, S_, P_ = "certificate.json", "shared.json", "per-step.json"
FACTS, HASH, BOUNDS = "certificate and episode data", "hash of the episode data", "bounds"
ANY = (E_, S_, P_)
# name: (which certificates, careless or thorough, what is changed, the check that must catch it)
FORGERIES = {
    # every field of every certificate
    "lower raised": (ANY, "careless", field("lower", plus(0.5)), BOUNDS),
    "one lower raised a little": (ANY, "careless", field("lower", plus(2e-6, slice(0, 1))), BOUNDS),
    "one lower raised by hardly anything": ((E_,), "careless", field("lower", plus(4e-7, slice(0, 1))), BOUNDS),
    "lower above every return": (ANY, "careless", field("lower", lambda x: [500.0 for _ in x]), BOUNDS),
    "lower made worse": ((E_, S_), "careless", field("lower", plus(-0.01, slice(1, 2))), BOUNDS),
    "lower made much worse": ((P_,), "careless", field("lower", plus(-5.0, slice(1, 2))), BOUNDS),
    "upper lowered": (ANY, "careless", field("upper", plus(-0.01)), BOUNDS),
    "a bound left out": (ANY, "careless", field("lower", lambda x: x[:-1]), BOUNDS),
    "a bound that is text": (ANY, "careless", field("lower", lambda x: [*x[:-1], "high"]), BOUNDS),
    "confidence": (ANY, "careless", field("confidence", lambda c: 0.99), BOUNDS),
    "confidence above one": (ANY, "careless", field("confidence", lambda c: 1.5), BOUNDS),
    "budgets": (ANY, "careless", field("budgets", plus(0.1)), BOUNDS),
    "a negative budget": (ANY, "careless", field("budgets", lambda b: [-1.0, *b[1:]]), BOUNDS),
    "sigma": (ANY, "careless", field("sigma", lambda s: 2 * s), FACTS),
    "floor": (ANY, "careless", field("floor", lambda a: 10.0), FACTS),
    "ceiling": (ANY, "careless", field("ceiling", lambda b: 500.0), FACTS),
    "episodes": (ANY, "careless", field("n_episodes", lambda n: 10 * n), FACTS),
    "task": (ANY, "careless", field("task", lambda t: "cartpole-5"), FACTS),
    "agent": (ANY, "careless", field("agent", lambda a: "better"), FACTS),
    "agent_sha256": (ANY, "careless", field("agent_sha256", lambda h: "0" * 64), FACTS),
    "seed": (ANY, "careless", field("seed", lambda k: k + 1), FACTS),
    "max_steps": (ANY, "careless", field("max_steps", lambda n: 500), FACTS),
    "record_sha256": (ANY, "careless", field("record_sha256", lambda h: "0" * 64), HASH),
    "estimate": (ANY, "careless", field("estimate", lambda x: x + 1), "estimate"),
    "estimate_sem": (ANY, "careless", field("estimate_sem", lambda x: x / 2), "estimate"),
    "statement": (ANY, "careless", field("statement", lambda t: t.replace("least", "most")), "sentence"),
    "a promise added": (ANY, "careless", field("warranty", lambda _: "for ever"), "fields"),
    "an unknown method": (ANY, "careless", field("method", lambda m: "magic"), BOUNDS),
    "another method": ((E_,), "careless", field("method", lambda m: "dkw"), BOUNDS),
    "threshold spacing": ((E_,), "careless", field("threshold_spacing", lambda d: 100.0), BOUNDS),
    "joint_confidence": ((E_,), "careless", field("joint_confidence", lambda c: 0.95), BOUNDS),
    "a choice that was none": (
        (E_,),
        "careless",
        field("method_selection", lambda _: {"method": "band", "pilot": 3}),
        BOUNDS,
    ),
    "bets that were none": ((E_,), "careless", field("bets", lambda _: {"lower": [], "upper": []}), BOUNDS),
    "a CVaR beyond one": (
        (E_,),
        "careless",
        field("cvars", lambda _: [{"q": 1.5, "lower": [0.0] * 3, "upper": [200.0] * 3}]),
        BOUNDS,
    ),
    "a quantile beyond one": (
        (E_,),
        "careless",
        field("quantiles", lambda _: [{"q": 1.5, "lower": [0.0] * 3, "upper": [200.0] * 3}]),
        BOUNDS,
    ),
    "a probability": (
        (E_,),
        "careless",
        field("probabilities", lambda _: [{"at_least": 100.0, "lower": [1.0] * 3, "upper": [1.0] * 3}]),
        BOUNDS,
    ),
    "a norm": (
        (E_,),
        "careless",
        field(
            "norm",
            lambda _: {"name": "linf", "budgets": [0.0, 0.2, 0.4], "coordinates": 1, "observations": 1, "factor": 1.0},
        ),
        BOUNDS,
    ),
    "a discount": (ANY, "careless", field("gamma", lambda _: 0.9), FACTS),
    "features": (ANY, "careless", field("sigma_per_feature", lambda _: [0.4, 0.8, 0.8, 0.8]), FACTS),
    "a certain budget": ((S_,), "careless", field("certain", lambda _: True), BOUNDS),
    "shared by fewer": ((S_,), "careless", field("n_shared_episodes", lambda m: 50), BOUNDS),
    "another pilot": ((S_,), "careless", field("n_pilot_episodes", lambda m: m + 1), BOUNDS),
    "another planner": ((S_,), "careless", field("planner", lambda v: 9), "choice"),
    "a planner where nothing is planned": ((E_,), "careless", field("planner", lambda _: "a notified body"), BOUNDS),
    "a choice that nothing checks": ((S_, P_), "careless", field("method_selection", lambda _: {"by": "us"}), "fields"),
    "bets that nothing checks": ((S_,), "careless", field("bets", lambda _: {"lower": "all won"}), "fields"),
    "a budget that is certain by a number": ((S_,), "careless", field("certain", lambda _: 0), BOUNDS),
    "another kind": ((S_, P_), "careless", field("kind", lambda k: "whole"), BOUNDS),
    "fewer steps": ((P_,), "careless", field("n_steps", lambda n: 100), BOUNDS),
    "the range of a reward": ((P_,), "careless", field("reward_range", lambda r: [0.0, 0.5]), BOUNDS),
    # the episode data and the files next to them
    "a return": (ANY, "careless", array("returns", one_better), HASH),
    "two returns swapped": (ANY, "careless", array("returns", swapped), HASH),
    "a length": (ANY, "careless", array("lengths", lambda n: n + (np.arange(n.size) == 7)), HASH),
    "returns of single precision": (ANY, "careless", array("returns", lambda x: x.astype(np.float32)), "episode data"),
    "lengths of zero": (ANY, "careless", array("lengths", lambda n: n * 0), "arrays"),
    "lengths beyond the limit": (ANY, "careless", array("lengths", lambda n: n + 1000), "arrays"),
    "an unknown array": (ANY, "careless", lambda run: run.arrays.update(bonus=np.ones(3)), "arrays"),
    "budget_used_per_step": (ANY, "careless", lambda run: run.arrays.update(budget_used=np.zeros(100)), FACTS),
    "setup.json": (ANY, "careless", lambda run: run.written.update(seed=6), "setup.json and episode data"),
    "run.json": (ANY, "careless", lambda run: run.notes.update(agent_sha256="0" * 64), "run.json and episode data"),
    "a return that is not a number": (ANY, "careless", array("returns", lambda x: x * np.nan), "returns"),
    # thorough: everything else is made to agree, and only the task, the weights and the rerun can tell
    "a better return": (ANY, "thorough", array("returns", one_better), ("replay", "arrays")),
    "returns swapped": ((E_, S_), "thorough", array("returns", swapped), "replay"),
    "a best-of selection": ((E_, S_), "thorough", array("returns", best_first), "replay"),
    "invented returns": ((E_, S_), "thorough", invented, ("returns", "replay")),
    "a shorter record": ((E_, S_), "thorough", fewer, ("certificate and episode data", "replay")),
    "a block repeated": ((E_, S_), "thorough", repeated, "returns"),
    "blocks exchanged": ((E_, S_), "thorough", exchanged, "replay"),
    "another length": ((E_, S_), "thorough", array("lengths", lambda n: n - (np.arange(n.size) == 7)), "replay"),
    "blocks of one episode": ((E_, S_), "thorough", blocks_of_one, "setup and weights"),
    "another seed": (ANY, "thorough", setup(seed=6), "replay"),
    "another sigma": (ANY, "thorough", setup(sigma=0.5), "replay"),
    "another stream": (ANY, "thorough", setup(purpose=[2]), "setup and weights"),
    "another agent's hash": (ANY, "thorough", setup(agent_sha256="0" * 64), "setup and weights"),
    "another agent": (ANY, "thorough", setup(agent="cartpole-1-s0.2"), "setup and weights"),
    "a higher floor": (ANY, "thorough", setup(floor=1.0), "floor and ceiling"),
    "a higher ceiling": (ANY, "thorough", setup(ceiling=210.0), "floor and ceiling"),
    "another limit": ((E_, S_), "thorough", setup(max_steps=500), "setup and weights"),
    "another environment": (ANY, "thorough", setup(environment="Acrobot-v1"), "setup and weights"),
    "another device": (ANY, "thorough", setup(device="cuda"), ("setup and weights", "replay")),
    "nonsense in the setup": (ANY, "thorough", setup(n_envs="many"), "setup and weights"),
    "wins and losses that the task does not declare": (ANY, "done", declared, "setup and weights"),
    "an attack without its name": (ANY, "thorough", setup(budget=1.0), "setup and weights"),
    "a huge ceiling": ((E_,), "done", huge_ceiling, BOUNDS),
    "rewards without episodes": ((P_,), "done", extra_rewards, "arrays"),
    "rewards of blocks exchanged": ((P_,), "done", exchanged_rewards, "arrays"),
    "rewards a little smaller": ((P_,), "done", smaller_rewards, "arrays"),
}
ROWS = [(row, name) for row, (names, *_) in FORGERIES.items() for name in names]


def forge(folder, row):
    """Apply a row of the table to the run in ``folder``; return the checks one of which must fail."""
    _, how, change, caught = FORGERIES[row]
    run = Run.read(folder)
    change(run)
    if how == "thorough":
        run.recertify()
    run.write()
    return (caught,) if isinstance(caught, str) else caught
