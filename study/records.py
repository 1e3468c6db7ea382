"""The records page: what the best pretrained agents certify, next to the paper and to other published agents.

    python -m study.records                              # print the tables
    python -m study.records --write                      # renew docs/records.md, its numbers and figure, and README.md
    python -m study.records --verify --write             # verify every entry of records/ first (make records)
    python -m study.records --run episodes attacks       # measure what is missing or was measured on other weights
    python -m study.records --run million --device cuda  # a million episodes of every CartPole agent

Episodes and attacks are in ``study/data/records``, apart from those of the study, which compares like with like. Those
of pretrained agents become entries of the leaderboard (``records/NAME/``) next to those of others.
``docs/figures/records.json`` has every number of the page and the hash of the data it was computed from.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from study.entries import ENTRIES, read_entries, refusals, row, used_budget, write_own
from study.measure import Place, attack_agent, attack_of, play_episodes
from study.numbers import CONFIDENCE, DATA, Agent, Study, every_agent, shipped_agents
from study.records_figure import draw
from study.records_page import BUDGETS, USUAL, fill, polished, results
from study.sizes import AttackSize
from surefoot.agents import files as zoo
from surefoot.attacks.registry import METHODS
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import read_arrays, read_json, write_json
from surefoot.play.task import Task
from surefoot.play.tasks import TASKS
from surefoot.proof.bounds.bands import tail_tight
from surefoot.proof.bounds.from_band import mean_upper
from surefoot.proof.forecast import best_achievable
from surefoot.proof.inconsistency import INCONSISTENCY_ALPHA
from surefoot.proof.query import certify
from surefoot.provenance import sha256
from surefoot.runs.folder import configuration_name

ROOT = DATA.parents[1]
RECORDS, MILLION = DATA / "records", DATA / "records" / "million"
NUMBERS = ROOT / "docs" / "figures" / "records.json"
PARTS = ("episodes", "attacks", "million")
N_EPISODES, MANY = 10_000, 1_000_000
GAME_FRESH = 500  # fresh episodes of an Atari game when entries are verified: an hour of two cores would run 10,000
ATTACKED_BUDGETS = {
    "cartpole-5": (0.4, 1.0),
    "cartpole-1": (0.4, 1.0),
    "mountain-car": (1.0,),
    "freeway": (0.4, 0.8),
    "pong-1r": (0.2, 0.6),
    "pong-full": (0.1, 0.4),
}
NOISE_SAMPLES = 4
# What is tried, and on how many episodes: attacks with gradients take minutes, the others seconds.
ATTACKS = {"paper": 50, "adaptive": 50, "structured": 1_000, "constant-direction": 1_000}
# A student of twelve frames takes a hundred times as long.
ATARI_ATTACKS = {"paper": 16, "adaptive": 16, "structured": 256, "constant-direction": 256}


def new_agents() -> list[Agent]:
    """Return the smoothed agents that were trained otherwise than the paper's."""
    of_paper = {agent.name for agent in shipped_agents()}
    return [agent for agent in every_agent() if agent.sigma > 0 and agent.name not in of_paper]


def entries() -> Iterator[tuple[Agent, Episodes]]:
    """Return every smoothed agent with each of its episode data: the study's, ten thousand, a million.

    Where the study's are in other blocks than the task's own, which no verification would rerun, there are others here.
    """
    folders = (DATA, RECORDS, MILLION)
    own = {path.stem for path in (RECORDS / "episodes").glob("*.npz")}
    for study in (Study(folder, every_agent()) for folder in folders if folder.is_dir()):
        for agent in study.agents:
            elsewhere = study.folder == DATA and agent.name in own
            record = study.record(agent) if agent.sigma > 0 and not elsewhere else None
            if record is not None and agent.task in BUDGETS:
                yield agent, record


def numbers() -> dict[str, Any]:
    """Return every number of the page."""
    of_paper = {agent.name for agent in shipped_agents()}
    found = list(entries())
    rows = [_certified(agent, record, agent.name in of_paper, _rivals(agent, found)) for agent, record in found]
    attacks = [attacked for agent in new_agents() for method in ATTACKS for attacked in _attacked(agent, method, rows)]
    peers = read_json(RECORDS / "peers.json")["rows"]
    board = [row(entry, BUDGETS[str(entry.certificate.metadata["task"])]) for entry in read_entries()]
    return {
        "schema": 1,
        "data_sha256": fingerprint(),
        "agents": rows,
        "attacks": attacks,
        "board": board,
        "peers": peers,
    }


def fingerprint() -> str:
    """Return one hash of the data and of the weights that the page is about."""
    sources = (*(DATA / "episodes").glob("*.npz"), *RECORDS.rglob("*.*"), *ENTRIES.rglob("*.*"))
    chunks = [f"{path.relative_to(ROOT)}".encode() + path.read_bytes() for path in sorted(sources) if path.is_file()]
    return sha256(*chunks, *(agent.sha256.encode() for agent in every_agent() if agent.sigma > 0))


def write_entries() -> None:
    """Write the pretrained agents' own entries of the leaderboard."""
    new = {agent.name for agent in new_agents()}
    for agent, record in entries():
        # Those of other kinds than the paper's, or where there is no other.
        if len(record) <= USUAL and (agent.name in new or agent.task == "pong-full"):
            folders = (DATA / "attacks", RECORDS / "attacks")  # of the study, of the records
            attacks = [folder / f"{agent.name}-{method}.json" for folder in folders for method in ATTACKS]
            made = certify(record, BUDGETS[agent.task], CONFIDENCE)
            write_own(agent, record, made, _memory(agent), [path for path in attacks if path.is_file()])


def verify_entries(blocks: int | None = None) -> None:
    """Verify all entries, and stop if one is refused; ``blocks`` as ``refusals`` has it."""
    refused = False
    for entry in read_entries():
        game = TASKS[str(entry.certificate.metadata["task"])].cartridge is not None
        for reason in refusals(entry, blocks=blocks, fresh=GAME_FRESH if game else None):
            print(f"records/{entry.folder.name}: refused: {reason}", file=sys.stderr)
            refused = True
    if refused:
        raise SystemExit(1)


def _memory(agent: Agent) -> str:
    layout = agent.card["layout"]
    return layout["kind"].upper() if layout["kind"] in {"gru", "lstm"} else _frames(layout["n_stack"])


def _certified(agent: Agent, record: Episodes, paper_style: bool, rivals: int) -> dict[str, Any]:
    """Return what an agent certifies at its task's budgets, by both methods, and how it was trained."""
    assert record.metadata["agent_sha256"] == agent.sha256, f"the episodes of {agent.name} are of other weights"
    budgets, training = BUDGETS[agent.task], agent.card["training"]
    auto, paid = (certify(record, budgets, level) for level in (CONFIDENCE, 1 - (1 - CONFIDENCE) / rivals))
    begun = {"init_from": training["init_from"]["name"]} if training["preset"] == "polish" else {}
    most = [
        best_achievable(len(record), budget / agent.sigma, 1 - CONFIDENCE, record.floor, record.ceiling)
        for budget in budgets
    ]
    return {
        "agent": agent.name,
        "agent_sha256": agent.sha256,
        "task": agent.task,
        "sigma": agent.sigma,
        "memory": _memory(agent),
        "paper_style": paper_style,
        "training": {key: training[key] for key in ("preset", "steps", "seconds", "device")} | begun,
        "n_episodes": len(record),
        "mean": float(record.returns.mean()),
        "sem": float(record.returns.std(ddof=1) / len(record) ** 0.5),
        "budgets": list(budgets),
        "auto": [float(value) for value in auto.lower],
        "paper": [float(value) for value in certify(record, budgets, CONFIDENCE, "paper").lower],
        "rivals": rivals,
        "paid": [float(value) for value in paid.lower],
        "best_achievable": most,
    }


def _frames(count: int) -> str:
    return "1 frame" if count == 1 else f"{count} frames"


def _rivals(agent: Agent, found: list[tuple[Agent, Episodes]]) -> int:
    """Return among how many agents of the same game the best is chosen after inspecting their certificates."""
    game = agent.task.split("-")[0] if agent.task.startswith("cartpole") else agent.task
    return len({other.name for other, _ in found if other.task.startswith(game)})


def _attacked(agent: Agent, method: str, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return the lowest attacked mean at every budget, next to the bound; red if the bound is contradicted."""
    path = RECORDS / "attacks" / f"{agent.name}-{method}.json"
    if not path.is_file():
        return
    found, cells = read_json(path), read_arrays(path.with_suffix(".npz"))
    assert found["agent_sha256"] == agent.sha256, f"the attacks on {agent.name} are on other weights"
    own = next(row for row in rows if row["agent"] == agent.name)
    ceiling = TASKS[agent.task].scoring.ceiling
    assert ceiling is not None
    for place, (budget, used) in enumerate(zip(found["budgets"], used_budget(found), strict=True)):
        bound = own["auto"][own["budgets"].index(budget)]
        names = [configuration_name(budget, one) for one in (None, *found["lambdas"])]
        returns = [cells[f"{name}.returns"] for name in names if f"{name}.returns" in cells]
        least = min(float(mean_upper(tail_tight(one, INCONSISTENCY_ALPHA), ceiling, 0.0)) for one in returns)
        assert least >= bound, f"{agent.name} at {budget}: attacked mean at most {least}, certified {bound}"
        yield {
            "agent": agent.name,
            "method": method,
            "budget": budget,
            "n_episodes": found["n_episodes"],
            "mean": found["curve"][place],
            "sem": found["curve_sem"][place],
            "bound": bound,
            "used": used,
        }


def measure(
    part: str,
    agents: list[Agent],
    place: Place,
    methods: Sequence[str] = tuple(ATTACKS),
    episodes: int = N_EPISODES,
) -> None:
    """Measure one part for the agents that lack it."""
    for agent in agents:
        if part == "attacks":
            _attack(agent, place, methods)
            continue
        million = part == "million"
        target = Place(MILLION if million else place.data, place.work, place.device, place.workers)
        if (million and not agent.task.startswith("cartpole")) or _of(
            target.data / "episodes" / f"{agent.name}.json", agent
        ):
            continue
        print(play_episodes(agent, MANY if million else episodes, target), flush=True)


def _attack(agent: Agent, place: Place, methods: Sequence[str]) -> None:
    """Attack an agent with the methods that it was not attacked with and that it has what they need for."""
    task = TASKS[agent.task]
    for method in methods if task.name in ATTACKED_BUDGETS else ():
        episodes = (ATTACKS if task.cartridge is None else ATARI_ATTACKS)[method]
        size = AttackSize(ATTACKED_BUDGETS[task.name], _lambdas(task, method), episodes, NOISE_SAMPLES)
        path = place.data / "attacks" / f"{agent.name}-{method}.json"
        # What was measured at fewer budgets, or with another lambda where one is given, is measured again.
        found = read_json(path) if _of(path, agent) else {"lambdas": [], "budgets": []}
        same = _by_gaps(task, method) or found["lambdas"] in ([None], [*size.lambdas])
        known = same and found["budgets"] == [*size.budgets]
        if known or not attackable(agent, method):
            continue
        if _by_gaps(task, method):
            size = replace(size, lambdas=attack_of(agent, size, place.device, method).default_lambdas()[1:2])
        print(attack_agent(agent, size, place, method), flush=True)


def _lambdas(task: Task, method: str) -> tuple[float, ...]:
    """Return 0, or the attack's own lambdas where actions are continuous."""
    return (METHODS[method].lambdas if task.spaces.n_actions is None else ()) or (0.0,)


def attackable(agent: Agent, method: str) -> bool:
    """Return whether the agent has what the attack needs: Algorithm 2 asks a critic, which PPO agents do not have."""
    try:
        METHODS[method].check(TASKS[agent.task], zoo.load(agent.name))
    except InputError:
        return False
    return True


def _by_gaps(task: Task, method: str) -> bool:
    """Return whether lambda_q is the median of the agent's own value gaps.

    Of a student it is 0: its outputs are logits, and hardly a step has a gap above their median.
    """
    return METHODS[method].has_lambda and task.spaces.n_actions is not None and task.cartridge is None


def _of(path: Path, agent: Agent) -> bool:
    return path.is_file() and read_json(path)["agent_sha256"] == agent.sha256


def main() -> None:
    """Measure, print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", nargs="+", choices=PARTS, default=[])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--verify", action="store_true", help="verify every entry of records/, minutes of rerunning")
    parser.add_argument("--agents", nargs="+", help="only these (default: all of another kind than the paper's)")
    parser.add_argument("--attacks", nargs="+", choices=tuple(ATTACKS), default=list(ATTACKS))
    parser.add_argument("--episodes", type=int, default=N_EPISODES, help="without attack (default: 10,000)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--work", type=Path, default=Path("runs/records"))
    arguments = parser.parse_args()
    for part in arguments.run:
        chosen = [agent for agent in new_agents() if arguments.agents is None or agent.name in arguments.agents]
        measure(part, chosen, Place(RECORDS, arguments.work, arguments.device), arguments.attacks, arguments.episodes)
    if arguments.run and not arguments.write:
        return
    if arguments.write:
        write_entries()
    if arguments.verify:
        verify_entries()
    found = numbers()
    blocks = fill(found)
    if arguments.write:
        from study.agents_table import put

        write_json(NUMBERS, found)
        draw(found, NUMBERS.with_suffix(".svg"))
        for block, content in blocks.items():
            put(ROOT / "docs" / "records.md", block, content)
        put(ROOT / "README.md", "results", results(found))
        put(ROOT / "docs" / "training.md", "polished", polished(found))
        return
    for block, content in blocks.items():
        print(f"{block}:\n\n{content}\n")


if __name__ == "__main__":
    main()
