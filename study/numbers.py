"""Raw numbers on disk: which agents there are, their episodes, how they were attacked, how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.paper import LARGEST
from surefoot.agents.files import list_agents, load_card
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import read_json
from surefoot.play.task import Task
from surefoot.play.tasks import TASKS
from surefoot.proof.episode_budget import EpisodeCertificate
from surefoot.proof.query import certify
from surefoot.provenance import sha256

DATA = Path(__file__).resolve().parent / "data"  # the committed numbers
CONFIDENCE = 0.95
POINTS = 41  # of a drawn curve
# What each kind of file must say.
PLAYED = ("seconds", "n_episodes", "workers", "device")
ATTACKED = ("agent_sha256", "n_episodes", "budgets", "lambdas", "mean", "sem", "curve", "curve_sem", "curve_lambda")
TRAINED = ("curve", "seconds", "device")


@dataclass(frozen=True, eq=False)
class Agent:
    """A pretrained agent, as its card has it."""

    name: str
    task: str
    sigma: float
    sha256: str
    card: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Study:
    """A directory of raw numbers and the agents they belong to.

    ``folder``   episodes/, attacks/, training/ and times.json, as far as they are there
    ``agents``   the pretrained agents
    ``trained``  whether training curves are those in the folder, not those on the agents' cards
    """

    folder: Path
    agents: tuple[Agent, ...]
    trained: bool = False
    _kept: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def of(self, task: str, most: float | None = None) -> list[Agent]:
        """Return a task's agents by their sigma, up to ``most``."""
        found = [agent for agent in self.agents if agent.task == task and (most is None or agent.sigma <= most)]
        return sorted(found, key=lambda agent: agent.sigma)

    def smoothed(self, task: str, most: float | None = None) -> list[Agent]:
        """Return a task's agents that were trained with noise and have episodes."""
        return [agent for agent in self.of(task, most) if agent.sigma > 0 and self.record(agent) is not None]

    def bare(self, task: str) -> Agent | None:
        """Return the task's agent without noise."""
        return next((agent for agent in self.of(task) if agent.sigma == 0), None)

    def record(self, agent: Agent) -> Episodes | None:
        """Return the episodes of an agent without attack."""
        path = self.folder / "episodes" / f"{agent.name}.npz"
        found: Episodes | None = self._once(
            ("record", agent.name), lambda: Episodes.load(path) if path.is_file() else None
        )
        return found

    def played(self, agent: Agent) -> dict[str, Any] | None:
        """Return how those episodes were run: command, time, cores."""
        return self._read(("played", agent.name), self.folder / "episodes" / f"{agent.name}.json", PLAYED)

    def attack(self, agent: Agent | None, method: str = "paper") -> dict[str, Any] | None:
        """Return what an attack on an agent achieved."""
        if agent is None:
            return None
        path = self.folder / "attacks" / f"{agent.name}-{method}.json"
        return self._read(("attack", agent.name, method), path, ATTACKED)

    def times(self, kind: str = "attacks") -> list[dict[str, Any]]:
        """Return the measured times of attacked episodes, or of ``episodes`` without attack that were timed apart."""
        found = self._read(("times",), self.folder / "times.json", ("attacks",))
        return [] if found is None else list(found.get(kind, ()))

    def timed(self, agent: Agent) -> dict[str, Any] | None:
        """Return episodes of an agent and their seconds: its record's or, of a resumed run, others of the same."""
        played = self.played(agent)
        if played is None or played["seconds"] is not None:
            return played
        return next((row for row in self.times("episodes") if row["agent"] == agent.name), None)

    def serial(self) -> dict[str, Any] | None:
        """Return one agent's returns in single rounds and in whole games, attacked alike."""
        return self._read(("serial",), self.folder / "serial.json", ("agent", "agent_sha256", "rows"))

    def step_wise(self) -> dict[str, Any] | None:
        """Return how far every action of an episode can be certified."""
        return self._read(("step-wise",), self.folder / "step-wise.json", ("task", "budgets", "agents"))

    def trainings(self, agent: Agent) -> list[dict[str, Any]]:
        """Return every training of an agent's task and sigma: preset, seed, seconds, curve.

        Candidates that were trained on another task of their game are left out: their validations are of that task.
        """
        if not self.trained:
            device = agent.card["training"]["device"]
            own = (one for one in agent.card.get("candidates", []) if "trained_on" not in one)
            return [{"device": device, **one} for one in own]
        found = self._read(("training", agent.name), self.folder / "training" / f"{agent.name}.json", TRAINED)
        return [] if found is None else [found]

    def certificate(self, agent: Agent, method: str = "paper") -> EpisodeCertificate:
        """Return the certificate of an agent's episodes at the task's budgets."""
        record = self.record(agent)
        assert record is not None
        return self._certified(("certificate", agent.name, method), record, agent.task)

    def most(self, agent: Agent, method: str = "paper") -> EpisodeCertificate:
        """Return what as many episodes certify at most: every one of them ends at the ceiling."""
        record = self.record(agent)
        assert record is not None
        assert record.ceiling is not None
        perfect = Episodes.from_returns(
            np.full(len(record), record.ceiling),
            sigma=record.sigma,
            floor=record.floor,
            ceiling=record.ceiling,
            task=record.metadata.get("task"),
            binary=record.metadata.get("binary"),
        )
        return self._certified(("most", agent.name, method), perfect, agent.task)

    def stale(self) -> list[str]:
        """Return which numbers were measured on other weights than those of the pretrained agents."""
        bad = []
        for agent in self.agents:
            record = self.record(agent)
            if record is not None and record.metadata.get("agent_sha256") != agent.sha256:
                bad.append(f"episodes of {agent.name}")
            attack = self.attack(agent)
            if attack is not None and attack.get("agent_sha256") != agent.sha256:
                bad.append(f"attacks on {agent.name}")
        serial, weights = self.serial(), {agent.name: agent.sha256 for agent in self.agents}
        if serial is not None and weights.get(serial["agent"]) != serial["agent_sha256"]:
            bad.append(f"rounds and games of {serial['agent']}")
        voting = self.step_wise() or {"agents": []}
        rows = [row for row in voting["agents"] if weights.get(row["agent"]) != row["agent_sha256"]]
        bad += [f"certified actions of {row['agent']}" for row in rows]
        return [*bad, *self._stale_times()]

    def missing(self) -> list[str]:
        """Return which numbers of pretrained agents are not there."""
        bad = [f"episodes of {agent.name}" for agent in self.agents if self.record(agent) is None]
        return [*bad, *(f"attacks on {agent.name}" for agent in self.agents if self.attack(agent) is None)]

    def _certified(self, key: tuple[str, str, str], record: Episodes, task: str) -> EpisodeCertificate:
        made: EpisodeCertificate = self._once(key, lambda: certify(record, budgets_of(TASKS[task]), CONFIDENCE, key[2]))
        return made

    def _stale_times(self) -> list[str]:
        weights = {agent.name: agent.sha256 for agent in self.agents}
        rows = [*self.times(), *self.times("episodes")]
        return sorted({f"times of {row['agent']}" for row in rows if weights.get(row["agent"]) != row["agent_sha256"]})

    def _read(self, key: tuple[str, ...], path: Path, expected: tuple[str, ...]) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._once(key, lambda: read_json(path) if path.is_file() else None)
        lacking = [name for name in expected if found is not None and name not in found]
        if lacking:
            raise InputError(f"{path} does not say its {', '.join(lacking)}; measure it again with study/renew.py")
        return found

    def _once(self, key: tuple[str, ...], make: Any) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


def open_study(folder: Path | None = None, *, trained: bool = False) -> Study:
    """Open a directory of raw numbers: the one given, or the committed one."""
    place = folder or DATA
    if not place.is_dir():
        raise InputError(f"no directory {place}; expected one with episodes/ and attacks/, as study/data has them")
    agents = shipped_agents()
    return Study(place, (*agents, *_unshipped(place, agents)) if trained else agents, trained)


def _unshipped(place: Path, agents: tuple[Agent, ...]) -> list[Agent]:
    """Return what was trained in a folder for tasks and sigmas that have no pretrained agent."""
    names = {agent.name for agent in agents}
    found = [read_json(path) for path in sorted((place / "training").glob("*.json"))]
    return [Agent(one["name"], one["task"], float(one["sigma"]), "", one) for one in found if one["name"] not in names]


def shipped_agents() -> tuple[Agent, ...]:
    """Return the pretrained agents of the paper's kind, so that the study compares like with like."""
    return tuple(agent for agent in every_agent() if agent.name == f"{agent.task}-s{agent.sigma:g}")


def every_agent() -> tuple[Agent, ...]:
    """Return all pretrained agents of the tasks; those of other trainings have its label in their names."""
    cards = [card for card in (load_card(name) for name in list_agents()) if card["task"] in TASKS]
    return tuple(Agent(card["name"], card["task"], float(card["sigma"]), card["sha256"], card) for card in cards)


def budgets_of(task: Task) -> list[float]:
    """Return the budgets that a task is certified at."""
    last = LARGEST.get(task.name, task.paper.budgets[-1])
    return [round(last * index / 10, 10) for index in range(11)] if task.name in LARGEST else list(task.paper.budgets)


def grid_of(task: str) -> NDArray[np.float64]:
    """Return the budgets at which a curve is drawn."""
    return np.linspace(0, budgets_of(TASKS[task])[-1], POINTS)


def cell_sizes(attack: Mapping[str, Any]) -> list[list[int]]:
    """Return how many episodes each configuration of an attack has, a row for each budget."""
    found: list[list[int]] = attack.get("n_episodes_of_cells") or [
        [attack["n_episodes"]] * len(row) for row in attack["mean"]
    ]
    return found


def fingerprint(study: Study) -> str:
    """Return one hash of all raw numbers and of the weights they belong to.

    Records, MuJoCo and learned attackers are no part of the study: other scripts draw them, such as study/sandwich.py.
    """
    paths = sorted(path for path in study.folder.rglob("*") if path.suffix in {".json", ".npz"})
    others = {"records", "mujoco", "attackers"}
    paths = [path for path in paths if path.relative_to(study.folder).parts[0] not in others]
    chunks = [f"{path.relative_to(study.folder)}".encode() + path.read_bytes() for path in paths]
    return sha256(*chunks, *(agent.sha256.encode() for agent in study.agents))
