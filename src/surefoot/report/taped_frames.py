"""A replay as the page shows it: numbers for small observations, one sheet of pictures for images."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError
from surefoot.report.finished_run import FinishedRun

COLUMNS = 10  # pictures in a row of a sheet
MOST_COORDINATES = 12
MOST_STEPS = 500  # of a replay
MOST_TAPED = 2**26  # bytes of all its arrays, header included
SCHEMA = 1


def replay_data(run: FinishedRun, label: str) -> dict[str, Any] | None:
    """Return a run's replayed episode as the page's data, or None where there is none."""
    if run.tape is None:
        return None
    try:
        return _data(*run.tape, label)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise InputError(f"{run.name}/replay.npz is not a replay that this version reads: {error}") from error


def _data(facts: Mapping[str, Any], arrays: Mapping[str, Any], label: str) -> dict[str, Any]:
    if facts.get("schema") != SCHEMA:
        raise ValueError(f"schema {facts.get('schema')}, expected {SCHEMA}")
    _check_tracks(arrays)
    sigma = float(facts["sigma"])
    panels = [_panel("True state", "clean", arrays, "quiet", "clean")]
    if sigma > 0:
        panels.append(_panel("Noisy observation", "seen", arrays, "quiet", "seen"))
    if "attacked_seen" in arrays:
        panels.append(_panel("Perturbed and noisy observation", "attacked", arrays, "attacked", "seen"))
    shape = arrays["quiet_clean"].shape[1:]
    return {
        "label": label,
        "kind": "picture" if len(shape) >= 2 else "numbers",
        "environment": str(facts.get("environment") or ""),
        "sigma": sigma,
        "budget": facts.get("budget"),
        "coordinates": int(np.prod(shape)),
        "steps": max(panel["steps"] for panel in panels),
        "start": _largest(arrays),
        "panels": panels,
    }


def _check_tracks(arrays: Mapping[str, Any]) -> None:
    """Reject what is not at most ``MOST_STEPS`` observations, actions and budgets used of one length and shape."""
    for track in ("quiet", "attacked") if "attacked_seen" in arrays else ("quiet",):
        clean = arrays[f"{track}_clean"]
        if not 1 <= len(clean) <= MOST_STEPS or clean[0].shape != arrays["quiet_clean"].shape[1:] or not clean.size:
            raise ValueError(f"expected from 1 to {MOST_STEPS} observations of one shape, got {clean.shape}")
        shapes = {"seen": clean.shape, "actions": clean.shape[:1], "spent": clean.shape[:1]}
        for what, shape in shapes.items():
            if arrays[f"{track}_{what}"].shape != shape:
                raise ValueError(f"{track}_{what} has the shape {arrays[f'{track}_{what}'].shape}, expected {shape}")


def _panel(title: str, role: str, arrays: Mapping[str, Any], track: str, what: str) -> dict[str, Any]:
    shown = arrays[f"{track}_{what}"]
    panel: dict[str, Any] = {"title": title, "role": role, "steps": len(shown)}
    panel["spent"] = _rounded(arrays[f"{track}_spent"]) if track == "attacked" else None
    if shown.ndim >= 3:
        panel["sheet"] = sheet(shown)
        return panel
    panel["seen"] = _rounded(shown)
    panel["truth"] = _rounded(arrays[f"{track}_clean"]) if what == "seen" else None
    panel["actions"] = arrays[f"{track}_actions"].tolist()
    panel["perturbation"] = _rounded(_perturbation(arrays)) if track == "attacked" else None
    return panel


def _perturbation(arrays: Mapping[str, Any]) -> NDArray[Any]:
    """Return what the attacker added at each step: both episodes have the same noise."""
    steps = min(len(arrays["attacked_seen"]), len(arrays["quiet_seen"]))
    noise = arrays["quiet_seen"][:steps] - arrays["quiet_clean"][:steps]
    added: NDArray[Any] = arrays["attacked_seen"][:steps] - arrays["attacked_clean"][:steps] - noise
    return added


def _largest(arrays: Mapping[str, Any]) -> int:
    """Return the step of the largest perturbation, where the replay opens; 0 without an attack."""
    if "attacked_spent" not in arrays:
        return 0
    return int(np.argmax(np.diff(np.square(arrays["attacked_spent"], dtype=np.float64), prepend=0.0)))


def _rounded(values: NDArray[Any]) -> list[Any]:
    if values.ndim == 1:
        return [float(f"{value:.5g}") for value in values.tolist()]
    return [[float(f"{value:.5g}") for value in row] for row in values[:, :MOST_COORDINATES].tolist()]


def sheet(pictures: NDArray[Any]) -> dict[str, Any]:
    """Lay pictures (steps, height, width[, channels]) out on one grey PNG, as a data URI with its layout."""
    grey = _grey(pictures)
    steps, height, width = grey.shape
    lines = -(-steps // COLUMNS)
    laid = np.zeros((lines * COLUMNS, height, width), dtype=np.uint8)
    laid[:steps] = grey
    image = laid.reshape(lines, COLUMNS, height, width).transpose(0, 2, 1, 3).reshape(lines * height, COLUMNS * width)
    return {
        "source": "data:image/png;base64," + base64.b64encode(png(image)).decode("ascii"),
        "width": width,
        "height": height,
        "columns": COLUMNS,
    }


def png(image: NDArray[np.uint8]) -> bytes:
    """Return an 8-bit grey picture as a PNG file."""
    height, width = image.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = image
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(rows.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _grey(pictures: NDArray[Any]) -> NDArray[np.uint8]:
    if pictures.ndim == 4:
        # Colors come last (height, width, 3) or first (3, height, width); the axis of colors is the short one.
        axis = 3 if pictures.shape[3] <= 4 else 1
        pictures = pictures.mean(axis=axis)
    if pictures.ndim != 3:
        raise ValueError(f"expected pictures, got shape {pictures.shape}")
    grey: NDArray[np.uint8] = np.clip(np.round(pictures), 0, 255).astype(np.uint8)
    return grey
