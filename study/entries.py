"""Entries of the leaderboard: ``records/NAME/`` is a certified run with ``entry.json``; ``surefoot verify`` decides.

``entry.json`` has ``by`` (who certified), ``source`` (where the agent comes from), ``license``, ``remembers`` (how much
it sees, in words) and ``agent``: the agent's file in the directory, or null for a pretrained agent of Surefoot. Files
``attack*.json``, as ``surefoot attack`` writes them, are attacks on the same agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import surefoot
from study.numbers import CONFIDENCE, DATA, Agent
from study.records_page import BUDGETS
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import read_json, untrusted, write_json
from surefoot.play.plan import resolve_device
from surefoot.play.tasks import TASKS
from surefoot.proof.certificate import Certificate
from surefoot.proof.episode_budget import EpisodeCertificate
from surefoot.report.sentences import IDLE_SHARE
from surefoot.runs.read import check_attack

ENTRIES = DATA.parents[1] / "records"
NAME, STATED = "entry.json", ("by", "source", "license", "memory")


@dataclass(frozen=True)
class Entry:
    """One directory of the leaderboard, not yet verified.

    Attributes:
        folder: The directory.
        stated: What ``entry.json`` says.
        certificate: What is claimed.
        attacks: Results of attacks on the same agent.
    """

    folder: Path
    stated: Mapping[str, Any]
    certificate: Certificate
    attacks: Sequence[Mapping[str, Any]]

    @property
    def agent(self) -> Path | None:
        """The agent's file, if the directory has it."""
        return None if self.stated["agent"] is None else self.folder / str(self.stated["agent"])


def read_entries() -> list[Entry]:
    """Return all entries by name."""
    return [read_entry(path.parent) for path in sorted(ENTRIES.glob(f"*/{NAME}"))]


def read_entry(folder: Path) -> Entry:
    """Read one entry.

    Raises:
        InputError: If something is missing, or the certificate is about something else than the leaderboard.
    """
    stated, certificate = read_json(folder / NAME), Certificate.load(folder / "certificate.json")
    lacking = [key for key in STATED if not isinstance(stated.get(key), str) or not stated[key].strip()]
    if lacking or "agent" not in stated:
        raise InputError(
            f"{folder.name}: {NAME} needs {', '.join((*STATED, 'agent'))}; lacking: {lacking or ['agent']}"
        )
    agent = stated["agent"]
    if agent is not None and (Path(str(agent)).name != agent or agent in ("", "..")):
        raise InputError(f"{folder.name}: agent must be the name of a file in the directory, got {agent!r:.60}")
    wrong = list(_unlike_the_others(certificate))
    if wrong:
        raise InputError(f"{folder.name}: {'; '.join(wrong)}")
    attacks = []
    for path in sorted(folder.glob("attack*.json")):
        attack = read_json(path)
        with untrusted(path, "result of an attack"):
            check_attack(attack)
            used_budget(attack)
        if not certificate.is_about(attack, attack["sigma"]):
            raise InputError(f"{folder.name}: an attack is on another task, agent or noise than the certified ones")
        attacks.append(attack)
    return Entry(folder, stated, certificate, attacks)


def _unlike_the_others(certificate: Certificate) -> Iterator[str]:
    """Return why a certificate cannot be compared with the others, if it cannot."""
    task = TASKS.get(str(certificate.metadata.get("task")))
    if not isinstance(certificate, EpisodeCertificate):
        yield "the leaderboard is about budgets per episode"
    if certificate.confidence < CONFIDENCE:
        yield f"confidence {certificate.confidence:g} is below {CONFIDENCE:g}"
    if task is None:
        yield f"{certificate.metadata.get('task')!r} is not a task of the leaderboard: {', '.join(TASKS)}"
    elif (certificate.floor, certificate.ceiling) != (task.scoring.floor, task.scoring.ceiling):
        yield "floor and ceiling are not the task's"
    content = certificate.to_json()
    if content.get("gamma") is not None:
        yield "the return is discounted"
    if task is not None and max(content["budgets"]) < max(BUDGETS[task.name]):
        yield f"its budgets end at {max(content['budgets']):g}, the page shows up to {max(BUDGETS[task.name]):g}"
    if certificate.channel != "observations":
        yield f"it is about attacks on {certificate.channel}, the others on observations"
    if 0 in content.get("sigma_per_feature", ()):
        yield "nothing is certified about attacks on features without noise, and the others certify all features"


def is_rerun_anywhere(entry: Entry) -> bool:
    """Return whether every machine can rerun the entry's episodes bit for bit: those run on a GPU need one."""
    return bool(Episodes.load(entry.folder / "episodes.npz").setup["device"] == "cpu")


def refusals(entry: Entry, *, blocks: int | None = None, fresh: int | None = None) -> list[str]:
    """Return what speaks against an entry: every check of ``surefoot verify`` that did not pass, contradicting attacks.

    Nothing is accepted that could not be rerun, but for one thing: of episodes that were run on a GPU, where there is
    none, fresh episodes are compared with the record. Such entries are listed apart (``is_rerun_anywhere``).

    Args:
        entry: The entry.
        blocks: How many blocks of episodes to rerun; by default as many as ``surefoot verify`` does.
        fresh: How many fresh episodes to run; by default as many as ``surefoot verify`` does.
    """
    path = None if entry.agent is None else str(entry.agent)
    verdict = surefoot.verify(entry.folder, agent=path, blocks="enough" if blocks is None else blocks, fresh=fresh)
    away = not is_rerun_anywhere(entry) and resolve_device("auto") == "cpu"
    excused = {"replay"} if away else set()
    bad = [check for check in verdict.checks if check.result != "passed" and check.name not in excused]
    failed = [f"{check.name}: {check.detail}" for check in bad]
    if verdict.fresh is None:
        failed.append("no fresh episodes were run")
    return failed + [
        f"an attack with budget {budget:g} reached {mean:g} ± {sem:g}, certified are {bound:g}"
        for budget, mean, sem in _attacked(entry.attacks)
        if mean + 5 * sem < (bound := entry.certificate.at(budget).lower)
    ]


def _attacked(attacks: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, float, float]]:
    for attack in attacks:
        yield from zip(attack["budgets"], attack["curve"], attack["curve_sem"], strict=True)


def used_budget(attack: Mapping[str, Any]) -> list[bool]:
    """Return whether an attack used its budgets where its mean is the lowest; otherwise that is a mean without one."""
    places = [attack["lambdas"].index(lambda_) for lambda_ in attack["curve_lambda"]]
    used = [spent[place] for spent, place in zip(attack["mean_budget_used"], places, strict=True)]
    return [share >= IDLE_SHARE * budget for share, budget in zip(used, attack["budgets"], strict=True)]


def row(entry: Entry, budgets: Sequence[float]) -> dict[str, Any]:
    """Return what the leaderboard shows of an entry, at these budgets."""
    made = entry.certificate
    device = Episodes.load(entry.folder / "episodes.npz").setup["device"]
    used = [done for attack in entry.attacks for done in used_budget(attack)]
    tried = [one for one, done in zip(_attacked(entry.attacks), used, strict=True) if done]
    strongest = min(tried, key=lambda one: one[1], default=None)
    return {
        "name": entry.folder.name,
        **{key: entry.stated[key] for key in STATED},
        **{key: made.metadata[key] for key in ("agent", "agent_sha256", "task")},
        "sigma": made.sigma,
        "n_episodes": made.n_episodes,
        "device": device,
        "mean": made.estimate,
        "sem": made.estimate_sem,
        "budgets": list(budgets),
        "lower": [made.at(budget).lower for budget in budgets],
        "attack": None if strongest is None else dict(zip(("budget", "mean", "sem"), strongest, strict=True)),
        "attacked_bound": None if strongest is None else made.at(strongest[0]).lower,
    }


def write_own(
    agent: Agent, record: Episodes, certificate: Certificate, remembers: str, attacks: Sequence[Path]
) -> None:
    """Write the entry of a pretrained agent from committed episode data."""
    folder = ENTRIES / agent.name
    folder.mkdir(parents=True, exist_ok=True)
    certificate.save(folder)
    record.save(folder / "episodes.npz")
    stated = {"by": "Surefoot", "source": f"zoo/{agent.name}.npz", "license": "MIT", "memory": remembers}
    write_json(folder / NAME, {"schema": 1, **stated, "agent": None})
    for path in attacks:
        write_json(folder / f"attack-{path.stem.removeprefix(f'{agent.name}-')}.json", read_json(path))
