"""The picture of the flights: clean and attacked without defense, smoothed and attacked with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from cases.drone.landing import GOAL, WITHIN
from cases.drone.pilot import POSITION, STEP

PICTURE = Path(__file__).parents[2] / "docs" / "cases" / "drone.svg"
RED = "#b3261e"
BLUE = "#1f5fa8"


def draw_flights(undefended: Path, averaging: Path) -> None:
    """Draw the distance from the pad over time of two recorded pairs of episodes, and write the picture.

    Args:
        undefended: The replay of an attack on a pilot without noise.
        averaging: The replay of an attack on the averaging pilot with its noise.
    """
    figure = Figure(figsize=(7.2, 5.2), layout="constrained")
    rows = figure.subplots(2, 2, sharex=True)
    named = ((undefended, "quick pilot, undefended"), (averaging, "averaging pilot, smoothed"))
    for column, (path, title) in enumerate(named):
        with np.load(path, allow_pickle=False) as replay:
            quiet, attacked = replay["quiet_clean"], replay["attacked_clean"]
            received = replay["attacked_seen"]
        above, below = rows[0][column], rows[1][column]
        above.plot(*_distance(quiet), color=BLUE, label="without attack")
        above.plot(*_distance(attacked), color=RED, ls="--", label="attacked")
        above.axhspan(0, WITHIN, color="0.9")
        above.set_title(title, fontsize=10)
        above.legend(fontsize=8)
        seconds = STEP * np.arange(len(received))
        below.plot(seconds, received[:, POSITION.start], color="0.45", lw=0.6, label="position received")
        below.plot(seconds, attacked[:, POSITION.start], color=RED, ls="--", label="true position")
        below.set_xlabel("seconds")
        below.legend(fontsize=8)
    rows[0][0].set_ylabel("distance from the pad (m)")
    rows[1][0].set_ylabel("x, attacked (m)")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})


def _distance(observations: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
    away = np.linalg.norm(observations[:, POSITION] - np.array(GOAL), axis=1)
    return STEP * np.arange(len(observations)), away
