"""Every training curve of Mountain Car in one figure, from the validation tables that training wrote.

python -m study.mountain_car_curves gather runs/zoo   # curve.csv of every run -> study/data/mountain-car/curves.json
python -m study.mountain_car_curves draw              # -> study/data/mountain-car/curves.png
"""

from __future__ import annotations

import csv
import json
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

from study.numbers import DATA

HERE = DATA / "mountain-car"
PRESETS = {
    "thorough": "preset thorough: 300,000 steps",
    "early": "preset early: 40,000 steps",
    "brief": "preset brief: 6,000 steps",
}
STYLES = ("-", "--", "-.", ":", (0, (1, 3)), (0, (6, 2, 1, 2)), (0, (8, 4)), (0, (3, 1, 1, 1, 1, 1)))


def gather(folders: list[Path]) -> None:
    """Collect steps and means of every run's validations, in addition to those collected before."""
    stored = json.loads((HERE / "curves.json").read_text())["runs"] if (HERE / "curves.json").exists() else []
    runs = {key(run): run for run in stored}
    for path in sorted(found for folder in folders for found in folder.glob("mountain-car-*/curve.csv")):
        name, _, seed = path.parent.name.removeprefix("mountain-car-s").rpartition("-seed")
        sigma, _, preset = name.partition("-")
        with path.open() as file:
            rows = [(int(row["step"]), float(row["mean_return"])) for row in csv.DictReader(file)]
        run: dict[str, Any] = {"sigma": float(sigma), "preset": preset, "seed": int(seed), "curve": rows}
        runs[key(run)] = run
    HERE.mkdir(exist_ok=True)
    ordered = [runs[one] for one in sorted(runs)]
    (HERE / "curves.json").write_text(json.dumps({"schema": 1, "runs": ordered}) + "\n")


def key(run: dict[str, Any]) -> tuple[float, str, int]:
    """Return what distinguishes a training run from the others."""
    return run["sigma"], run["preset"], run["seed"]


def draw() -> None:
    """Draw one panel per preset and sigma, one line per training seed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    runs = json.loads((HERE / "curves.json").read_text())["runs"]
    sigmas = sorted({run["sigma"] for run in runs})
    figure, axes = pyplot.subplots(len(PRESETS), len(sigmas), figsize=(12, 7.6), sharey=True, layout="constrained")
    for row, (preset, title) in zip(axes, PRESETS.items(), strict=True):
        for axis, sigma in zip(row, sigmas, strict=True):
            some = [run for run in runs if run["preset"] == preset and run["sigma"] == sigma]
            for style, run in zip(cycle(STYLES), some, strict=False):
                steps, means = zip(*run["curve"], strict=True)
                axis.plot([step / 1_000 for step in steps], means, ls=style, lw=0.9)
            axis.axhline(1, color="0.6", lw=0.8)
            axis.set(title=f"sigma {sigma:g}, {title.split(':', maxsplit=1)[0]}", ylim=(-0.03, 1.05))
            if some:
                axis.set_xlabel("steps, thousands")
            else:
                axis.text(0.5, 0.5, "not run", ha="center", transform=axis.transAxes, color="0.5")
                axis.set_xticks([])
    for row in axes:
        row[0].set_ylabel("validation success")
    figure.savefig(HERE / "curves.png", dpi=130)


def main() -> None:
    """Gather or draw."""
    if sys.argv[1:2] == ["gather"]:
        gather([Path(folder) for folder in sys.argv[2:]])
    else:
        draw()


if __name__ == "__main__":
    main()
