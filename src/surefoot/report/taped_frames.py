"""A recorded episode as the page shows it: numbers for small observations, one sheet of pictures for images."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InputError
from surefoot.proof.rounding import format_exact
from surefoot.report.finished_run import FinishedRun, Tape, scope_words
from surefoot.report.offsets import coordinate_names

PICTURES_PER_ROW = 10  # of a sheet
MOST_COORDINATES = 12
MOST_REPLAY_STEPS = 500  # of a replay
MOST_TAPED = 2**26  # bytes of all its arrays, header included
REPLAY_SCHEMA = 1
TRACKS = (("quiet",), ("quiet", "attacked"), ("A", "B"))
TITLES = {
    "quiet": "Noisy observation",
    "attacked": "Perturbed and noisy observation",
    "A": "What A observes",
    "B": "What B observes",
}
WHOSE_RETURN = {"quiet": "without attack", "attacked": "under attack", "A": "of A", "B": "of B"}


def replay_data(run: FinishedRun, label: str) -> dict[str, Any] | None:
    """Return a run's replayed episode as the page's data, or None where there is none."""
    if run.tape is None:
        return None
    data = tape_data(run.tape, label, run.name)
    return data | {"names": coordinate_names(run.setup, data["coordinates"])[:MOST_COORDINATES]}


def tape_data(tape: Tape, label: str, run_name: str) -> dict[str, Any]:
    """Return a recording as the page's data."""
    try:
        return _recording_data(*tape, label)
    # A file of others may have anything anywhere.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(f"{run_name}/replay.npz is not a replay that this version reads: {error}") from error


def _recording_data(facts: Mapping[str, Any], arrays: Mapping[str, Any], label: str) -> dict[str, Any]:
    if facts.get("schema") != REPLAY_SCHEMA:
        raise ValueError(f"schema {facts.get('schema')}, expected {REPLAY_SCHEMA}")
    tracks = {str(name): dict(track) for name, track in facts["tracks"].items()}
    if tuple(tracks) not in TRACKS:
        raise ValueError(f"tracks {list(tracks)}")
    shape = arrays[f"{next(iter(tracks))}_clean"].shape[1:]
    for name in tracks:
        _check_track(name, arrays, shape)
    panels = []
    if "quiet" in tracks:
        panels.append(_panel("True state", "clean", arrays, "quiet", "clean"))
    for name, track in tracks.items():
        if track["sigma"] > 0 or name == "attacked":
            panels.append(_panel(TITLES[name], name, arrays, name, "seen"))
        elif name != "quiet":
            panels.append(_panel(TITLES[name], name, arrays, name, "clean"))
    return {
        "label": label,
        "kind": "picture" if len(shape) >= 2 else "numbers",
        "environment": str(facts.get("environment") or ""),
        "about": _about(facts, tracks),
        "budget": tracks["attacked"]["budget"] if "attacked" in tracks else None,
        "coordinates": int(np.prod(shape)),
        "steps": max(panel["steps"] for panel in panels),
        "start": _step_to_open_at(tuple(tracks), arrays),
        "panels": panels,
    }


def _about(facts: Mapping[str, Any], tracks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what is said below a replay: which episode it is, and the noise and the budget in it."""
    sentences = ["This episode was run for this page only."]
    if facts["episode"] is not None:
        found = []
        for name, value in zip(tracks, facts["returns"], strict=True):
            found.append(f"{float(value):g} {WHOSE_RETURN[name]}")
        which = f"Episode {int(facts['episode']):,} of the run"
        if len(set(facts["returns"])) > 1:
            which += ", in which the two differ most"
        sentences = [f"{which}: the return is {' and '.join(found)}."]
    sigmas = list(dict.fromkeys(float(track["sigma"]) for track in tracks.values()))
    if sigmas == [0.0]:
        sentences.append("There is no noise on observations.")
    elif len(sigmas) == 1:
        sentences.append(f"Noise with standard deviation {format_exact(sigmas[0])} on every new observation.")
    else:
        both = " and ".join(map(format_exact, sigmas))
        sentences.append(f"Noise with standard deviations {both} on every new observation of the one and the other.")
    if "attacked" in tracks:
        budget = format_exact(float(tracks["attacked"]["budget"]))
        sentences.append(f"Attack budget: {budget} ({scope_words(tracks['attacked'].get('scope'))}).")
    return sentences


def _check_track(track: str, arrays: Mapping[str, Any], shape: tuple[int, ...]) -> None:
    """Reject what is not at most MOST_REPLAY_STEPS observations, actions and budgets used of one length and shape."""
    clean = arrays[f"{track}_clean"]
    if not 1 <= len(clean) <= MOST_REPLAY_STEPS or clean[0].shape != shape or not clean.size:
        raise ValueError(f"expected from 1 to {MOST_REPLAY_STEPS} observations of one shape, got {clean.shape}")
    expected = {"seen": clean.shape, "actions": clean.shape[:1], "budget_used": clean.shape[:1]}
    for what, wanted in expected.items():
        found = arrays[f"{track}_{what}"].shape
        if found != wanted:
            raise ValueError(f"{track}_{what} has the shape {found}, expected {wanted}")


def _panel(title: str, role: str, arrays: Mapping[str, Any], track: str, what: str) -> dict[str, Any]:
    shown = arrays[f"{track}_{what}"]
    is_attacked = track == "attacked"
    panel: dict[str, Any] = {"title": title, "role": role, "steps": len(shown), "budget_used": None}
    if is_attacked:
        panel["budget_used"] = _short_numbers(arrays["attacked_budget_used"])
    if shown.ndim >= 3:
        panel["sheet"] = picture_sheet(shown)
        return panel
    actions = arrays[f"{track}_actions"].tolist()
    panel |= {"seen": _short_numbers(shown), "truth": None, "actions": actions, "perturbation": None}
    if what == "seen":
        panel["truth"] = _short_numbers(arrays[f"{track}_clean"])
    if is_attacked:
        panel["perturbation"] = _short_numbers(_perturbation(arrays))
    return panel


def _perturbation(arrays: Mapping[str, Any]) -> NDArray[Any]:
    """Return what the attacker added at each step: both episodes have the same noise."""
    steps = min(len(arrays["attacked_seen"]), len(arrays["quiet_seen"]))
    noise = arrays["quiet_seen"][:steps] - arrays["quiet_clean"][:steps]
    added: NDArray[Any] = arrays["attacked_seen"][:steps] - arrays["attacked_clean"][:steps] - noise
    return added


def _step_to_open_at(tracks: tuple[str, ...], arrays: Mapping[str, Any]) -> int:
    """Return the step of the largest perturbation, or the first after two agents have acted differently; else 0."""
    if tracks == ("A", "B"):
        steps = min(len(arrays["A_clean"]), len(arrays["B_clean"]))
        differs = (arrays["A_clean"][:steps] != arrays["B_clean"][:steps]).reshape(steps, -1).any(axis=1)
        return int(np.argmax(differs))
    if "attacked" not in tracks:
        return 0
    # The budget used so far is a root of a sum of squares: its square grows by the square of each perturbation.
    return int(np.argmax(np.diff(np.square(arrays["attacked_budget_used"], dtype=np.float64), prepend=0.0)))


def _short_numbers(values: NDArray[Any]) -> list[Any]:
    """Return an array as lists, with five digits, and of observations the first coordinates."""
    if values.ndim == 1:
        return [float(f"{value:.5g}") for value in values.tolist()]
    return list(map(_short_numbers, values[:, :MOST_COORDINATES]))


def picture_sheet(pictures: NDArray[Any]) -> dict[str, Any]:
    """Lay pictures (steps, height, width[, channels]) out on one grey PNG, as a data URI with its layout."""
    grey = _to_grey(pictures)
    steps, height, width = grey.shape
    lines = -(-steps // PICTURES_PER_ROW)
    laid = np.zeros((lines * PICTURES_PER_ROW, height, width), dtype=np.uint8)
    laid[:steps] = grey
    image = (
        laid.reshape(lines, PICTURES_PER_ROW, height, width)
        .transpose(0, 2, 1, 3)
        .reshape(lines * height, PICTURES_PER_ROW * width)
    )
    return {
        "source": "data:image/png;base64," + base64.b64encode(encode_png(image)).decode("ascii"),
        "width": width,
        "height": height,
        "columns": PICTURES_PER_ROW,
    }


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """Return an 8-bit grey picture as a PNG file."""
    height, width = image.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = image
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(rows.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + _png_chunk(b"IHDR", header) + _png_chunk(b"IDAT", body) + _png_chunk(b"IEND", b"")


def _png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _to_grey(pictures: NDArray[Any]) -> NDArray[np.uint8]:
    if pictures.ndim == 4:
        # Colors come last (height, width, 3) or first (3, height, width); the axis of colors is the short one.
        pictures = pictures.mean(axis=3 if pictures.shape[3] <= 4 else 1)
    if pictures.ndim != 3:
        raise ValueError(f"expected pictures, got shape {pictures.shape}")
    grey: NDArray[np.uint8] = np.clip(np.round(pictures), 0, 255).astype(np.uint8)
    return grey
