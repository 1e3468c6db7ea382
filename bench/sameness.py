"""Whether a change of the code changed a number: bounds and bets of committed and of fresh episodes, bit for bit.

    python bench/sameness.py --out before.json             # before it; minutes on one core
    python bench/sameness.py --compare before.json         # after it: prints every case that differs, code 1 if any

The cases:
- every record of ``study/data`` and of the leaderboard with noise, at nine scaled budgets and at one alone;
- the first draws of all sources of ``bench/regret.py``, with 1,000 returns each;
- 36 small runs of pretrained agents: six agents, six kinds of certificates.

Numbers are written as hexadecimal floats. Words, names of keys and hashes are left out: they may change.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import Episodes, certify, certify_per_step, certify_shared_budget, rollout
from surefoot.proof.certificate import Certificate

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MOST_RETURNS = 200_000  # records with more take minutes each and are bet on by the same code
SCALED_BUDGETS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
N_SMALL = 300
SMALL_RUNS = {
    "cartpole-1-s0.2": "cartpole-1",
    "cartpole-5-s0.2": "cartpole-5",
    "cartpole-5-ppo-s0.4": "cartpole-5",
    "cartpole-5-gru-polished-s0.35": "cartpole-5",
    "mountain-car-ppo-s0.6": "mountain-car",
    "mountain-car-s0.6": "mountain-car",
}


def spell_number(number: Any) -> Any:
    """Return a number as text that names it exactly; other values are left out."""
    if isinstance(number, float | np.floating):
        return float(number).hex()
    if isinstance(number, bool) or number is None or isinstance(number, int):
        return number
    return None


def spell_bets(found: Any) -> Any:
    """Return the numbers of nested JSON data in their order, without the names of their keys."""
    if isinstance(found, dict):
        return [spell_bets(value) for value in found.values()]
    if isinstance(found, list | tuple):
        return [spell_bets(value) for value in found]
    return spell_number(found)


def describe_certificate(certificate: Certificate) -> dict[str, Any]:
    """Return the bounds and the bets of a certificate."""
    upper = certificate.upper
    return {
        "lower": [spell_number(value) for value in certificate.lower],
        "upper": None if upper is None else [spell_number(value) for value in upper],
        "requested": spell_bets(dict(certificate.requested)),
        "selection": spell_bets(dict(certificate.method_selection or {})),
        "bets": spell_bets(getattr(certificate, "betting", None)),
    }


def committed_records() -> Iterator[tuple[str, Episodes]]:
    """Yield the committed episode data of smoothed agents, the small ones."""
    folders = (ROOT / "study" / "data", ROOT / "records")
    for path in sorted(path for folder in folders for path in folder.rglob("*.npz")):
        if path.stem in {"near-perfect"} or "attack" in str(path.relative_to(ROOT)):
            continue
        try:
            episodes = Episodes.load(path)
        except ValueError:
            continue  # other arrays than episodes
        if episodes.sigma > 0 and not episodes.attacked and len(episodes) <= MOST_RETURNS:
            yield str(path.relative_to(ROOT)), episodes


def answer_record(episodes: Episodes) -> dict[str, Any]:
    """Return what a record certifies by default, at one budget alone, and by each band."""
    budgets = [scaled * episodes.sigma for scaled in SCALED_BUDGETS]
    return {
        "grid": describe_certificate(certify(episodes, budgets)),
        "one": describe_certificate(certify(episodes, [2 * episodes.sigma])),
        "paper": describe_certificate(certify(episodes, budgets, method="paper")),
        "quantiles": describe_certificate(certify(episodes, budgets, quantiles=[0.1, 0.5])),
    }


def answer_draws() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the first draw of every source of the regret benchmark certifies."""
    sys.path.insert(0, str(HERE))
    import regret

    for source in (*regret.recorded(), *regret.synthetic()):
        returns = source.draw(np.random.default_rng([0, 1_000]), 1_000)
        episodes = Episodes.from_returns(returns, sigma=1.0, floor=source.floor, ceiling=source.ceiling)
        yield (
            f"draw of {source.name}",
            {
                "auto": describe_certificate(certify(episodes, source.grid)),
                "one": describe_certificate(certify(episodes, [2.0])),
                "sequential": describe_certificate(certify(episodes, source.grid, method="sequential")),
            },
        )


def answer_small_runs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield 36 certificates of small runs: six agents, six kinds."""
    for agent, task in SMALL_RUNS.items():
        sigma = float(agent.rpartition("-s")[2])
        episodes = rollout(task, agent, sigma=sigma, n_episodes=N_SMALL, seed=3, per_step=True)
        budgets = [scaled * sigma for scaled in SCALED_BUDGETS]
        certificates = {
            "auto": certify(episodes, budgets),
            "band": certify(episodes, budgets, method="band"),
            "per-threshold": certify(episodes, budgets, method="per-threshold"),
            "sequential": certify(episodes, budgets, method="sequential"),
            "shared": certify_shared_budget(episodes, budgets, 5),
            "per-step": certify_per_step(episodes, [budget / 10 for budget in budgets]),
        }
        returns = [spell_number(value) for value in episodes.returns]
        described = {name: describe_certificate(one) for name, one in certificates.items()}
        yield f"run of {agent}", {"returns": returns, **described}


def all_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every case with its name."""
    for name, episodes in committed_records():
        yield name, answer_record(episodes)
    yield from answer_draws()
    yield from answer_small_runs()


def main() -> int:
    """Write the numbers, or compare them with those of before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", type=Path)
    given = parser.parse_args()
    found = {}
    for name, numbers in all_cases():
        found[name] = numbers
        print(name, flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps(found))
    if given.compare is None:
        return 0
    before = json.loads(given.compare.read_text())
    different = [name for name in {**before, **found} if json.dumps(before.get(name)) != json.dumps(found.get(name))]
    for name in different:
        print(f"DIFFERENT: {name}")
    print(f"{len(found)} cases, {len(different)} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
