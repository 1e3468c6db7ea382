"""Grey Atari screens of 210 x 160 as frames of 84 x 84, each pixel the mean over its area."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 84
SCREEN = (210, 160)
AT_ONCE = 16  # screens that fit into a core's cache together with their sums

Frames = NDArray[np.uint8]


def _column_shares() -> list[list[tuple[int, int]]]:
    """Return, for each of the 21 columns that 40 become, which of them reach into it and by how many 21sts."""
    columns = []
    for new in range(21):
        shares = []
        for old in range(40):
            # On a line of 840 parts an old column has 21 and a new one 40: what they have in common.
            share = min(21 * old + 21, 40 * new + 40) - max(21 * old, 40 * new)
            if share > 0:
                shares.append((old, share))
        columns.append(shares)
    return columns


COLUMNS = _column_shares()


class Shrinker:
    """Shrinks screens in memory of its own: fresh memory for every frame takes the system longer than the sums take.

    Five rows become two and forty columns 21, with whole weights that sum to 200, so that every sum fits into 16 bits
    and is exact. Ties go to the even level. OpenCV's INTER_AREA adds rounded weights instead; the results differ, by 1
    of 255, only where the mean lies exactly between two levels.
    """

    def __init__(self) -> None:
        height, width = SCREEN
        self._rows = np.empty((AT_ONCE, height // 5, width), np.uint16)
        self._pairs = np.empty((AT_ONCE, height // 5, 2, width), np.uint16)
        places = AT_ONCE * SIDE * width // 40
        self._columns = np.empty(40 * places, np.uint16)
        self._part = np.empty(places, np.uint16)
        self._sums = np.empty(21 * places, np.uint16)
        self._means = np.empty(21 * places, np.float32)

    def __call__(self, screens: Frames) -> Frames:
        """Return screens (n, 210, 160) as (n, 84, 84)."""
        frames = np.empty((len(screens), SIDE, SIDE), np.uint8)
        for first in range(0, len(screens), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            self._shrink_part(screens[part], frames[part])
        return frames

    def _shrink_part(self, screens: Frames, frames: Frames) -> None:
        # Forty columns of everything in a row: sums of whole rows are fast, and a matrix product, which would do the
        # same, would start threads in every one of the processes that run emulators.
        pairs = self._pair_rows(screens).reshape(-1, 40)
        count = len(pairs)
        columns = _shape_memory(self._columns, 40, count)
        sums = _shape_memory(self._sums, 21, count)
        means = _shape_memory(self._means, 21, count)
        np.copyto(columns, pairs.T)
        part = self._part[:count]
        sums.fill(0)
        for total, shares in zip(sums, COLUMNS, strict=True):
            for old, share in shares:
                np.multiply(columns[old], np.uint16(share), out=part)
                np.add(total, part, out=total)
        # k / 200 is a tie exactly if k / 100 is odd, and then float32 holds k / 200 exactly.
        np.divide(sums, np.float32(200), out=means)
        np.rint(means, out=means)
        np.copyto(frames.reshape(count, 21), means.T, casting="unsafe")

    def _pair_rows(self, screens: Frames) -> NDArray[np.uint16]:
        """Return twice the sum of two rows and once the middle one, of every five, from above and from below."""
        count = len(screens)
        fives = screens.reshape(count, -1, 5, SCREEN[1])
        pairs = self._pairs[:count]
        rows = self._rows[:count]
        for side, (outer, inner) in enumerate(((0, 1), (4, 3))):
            np.add(fives[:, :, outer], fives[:, :, inner], out=rows, dtype=np.uint16)
            np.left_shift(rows, 1, out=rows)
            np.add(rows, fives[:, :, 2], out=pairs[:, :, side])
        return pairs


def _shape_memory(memory: NDArray[Any], high: int, wide: int) -> NDArray[Any]:
    return memory[: high * wide].reshape(high, wide)
