"""Draw one attacked episode: the undefended agent falls, next to the smoothed agent, which stays up.

    python -m docs.figures.episode             # draw the pictures from episode.json, for light and dark pages
    python -m docs.figures.episode --record    # run both episodes again first, seconds of one core

Both agents start in the same state (one seed) and are attacked by Algorithm 1 of the paper with the same budget. The
words below the picture, in the README, are written too.
"""

from __future__ import annotations

import json
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont

from study.agents_table import HEADLINE, ROOT, put
from surefoot.agents.files import load, load_card
from surefoot.files import read_arrays, read_json
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.tasks import get_task
from surefoot.proof.rounding import format_lower
from surefoot.runs.attacked import AttackGrid
from surefoot.runs.taped_episode import REPLAY_FILE, record_replay

HERE = Path(__file__).resolve().parent
TAPE = HERE / "episode.json"
AGENTS = {"undefended": "cartpole-5-s0", "smoothed": HEADLINE}
SEED, BUDGET, NOISE_SAMPLES = 1, 1.0, 64
WIDTH, HEIGHT, SCALE = 380, 250, 2  # of one panel; drawn larger and reduced, so that edges are smooth
TRACK, CART, POLE = HEIGHT - 62, (46, 22), 105
PLAIN, SOFT, RULE, PAPER = "#22282d", "#5a636b", "#d5d9dd", "#ffffff"
COLORS = {"undefended": "#a61c00", "smoothed": "#0b5394"}
SLOW = 30  # steps that are shown one by one: the undefended agent falls early
HOLD = 2_500  # milliseconds of the last picture
NIGHT = 13  # the darkest gray of pictures for dark pages


def record() -> dict[str, Any]:
    """Run one attacked episode of each agent from the same state, and return what passed through the channel."""
    tape: dict[str, Any] = {"schema": 1, "seed": SEED, "budget": BUDGET, "attack": "paper", "agents": {}}
    task = get_task("cartpole-5")
    for role, name in AGENTS.items():
        card = load_card(name)
        base = Plan(task=task, policy=load(name), noise=Noise.of(card["sigma"]), n_episodes=1, seed=SEED)
        grid = AttackGrid(base=base, budgets=(BUDGET,), noise_samples=NOISE_SAMPLES)
        with tempfile.TemporaryDirectory() as folder:
            failure = record_replay(base, grid.plan(BUDGET, 0.0), Path(folder))
            assert failure is None, failure
            arrays = read_arrays(Path(folder) / REPLAY_FILE)
        tape["agents"][role] = {
            "agent": name,
            "agent_sha256": card["sha256"],
            "sigma": card["sigma"],
            "steps": len(arrays["attacked_actions"]),
            "clean": np.round(arrays["attacked_clean"][:, [0, 2]].astype(float), 4).tolist(),
            "seen": np.round(arrays["attacked_seen"][:, [0, 2]].astype(float), 4).tolist(),
            "used": np.round(arrays["attacked_spent"], 4).tolist(),
        }
    return tape


def font(size: float, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Return the font that comes with matplotlib, so that every machine draws the same."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / name), round(size * SCALE))


def panel(role: str, taped: dict[str, Any], step: int, most: int) -> Image.Image:
    """Return one agent at one step: the cart as it is, the pole as the agent sees it, and the budget used."""
    image = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), PAPER)
    draw = ImageDraw.Draw(image)
    now = min(step, taped["steps"] - 1)
    fallen = taped["steps"] < most and step >= taped["steps"] - 1
    _text(draw, (14, 10), f"{role} agent" + (f", noise sigma {taped['sigma']:g}" if taped["sigma"] else ""), 12.5, True)
    _text(draw, (14, 30), "pale: the pole as the agent observes it", 9, color=SOFT)
    _line(draw, (20, TRACK), (WIDTH - 20, TRACK), RULE, 2)
    x, angle = taped["clean"][now]
    middle = WIDTH / 2 + x / 2.4 * (WIDTH / 2 - 40)
    _pole(draw, middle, taped["seen"][now][1], "#e3b7ad", 4)
    _pole(draw, middle, angle, COLORS[role], 7)
    left, top = middle - CART[0] / 2, TRACK - CART[1]
    draw.rounded_rectangle(_scaled(left, top, left + CART[0], TRACK), radius=4 * SCALE, fill=PLAIN)
    state = f"fell after {taped['steps']} steps" if fallen else f"step {now + 1} of {most}"
    stands = step >= most - 1 and not fallen
    _text(
        draw,
        (14, HEIGHT - 50),
        state + (": stands" if stands else ""),
        12,
        True,
        COLORS[role] if fallen or stands else PLAIN,
    )
    _bar(draw, taped["used"][now] / BUDGET)
    return image


def _pole(draw: ImageDraw.ImageDraw, middle: float, angle: float, color: str, width: int) -> None:
    base = (middle, TRACK - CART[1])
    _line(draw, base, (base[0] + POLE * np.sin(angle), base[1] - POLE * np.cos(angle)), color, width)


def _bar(draw: ImageDraw.ImageDraw, share: float) -> None:
    """Draw how much of its budget the attacker has used."""
    top, left, right = HEIGHT - 22, 120, WIDTH - 20
    _text(draw, (14, top - 4), "attack budget used", 9, color=SOFT)
    draw.rectangle(_scaled(left, top, right, top + 7), fill=RULE)
    draw.rectangle(_scaled(left, top, left + share * (right - left), top + 7), fill="#b45f06")


def _line(draw: ImageDraw.ImageDraw, begin: Any, end: Any, color: str, width: int) -> None:
    draw.line(_scaled(*begin, *end), fill=color, width=width * SCALE)


def _text(
    draw: ImageDraw.ImageDraw, place: Any, words: str, size: float, bold: bool = False, color: str = PLAIN
) -> None:
    draw.text((place[0] * SCALE, place[1] * SCALE), words, fill=color, font=font(size, bold))


def _scaled(*numbers: float) -> tuple[float, ...]:
    return tuple(number * SCALE for number in numbers)


def picture(tape: dict[str, Any], step: int) -> Image.Image:
    """Return both panels at one step, at their final size."""
    most = max(one["steps"] for one in tape["agents"].values())
    whole = Image.new("RGB", (2 * WIDTH * SCALE, HEIGHT * SCALE), PAPER)
    for place, (role, taped) in enumerate(tape["agents"].items()):
        whole.paste(panel(role, taped, step, most), (place * WIDTH * SCALE, 0))
    ImageDraw.Draw(whole).line(_scaled(WIDTH, 12, WIDTH, HEIGHT - 12), fill=RULE, width=SCALE)
    return whole.resize((2 * WIDTH, HEIGHT), Image.Resampling.LANCZOS)


def caption(tape: dict[str, Any]) -> str:
    """Return what the picture shows, the attacked mean of the undefended agent and the bound of the smoothed one."""
    fell, stood = tape["agents"]["undefended"], tape["agents"]["smoothed"]
    attacks = read_json(ROOT / "study" / "data" / "attacks" / f"{fell['agent']}-paper.json")
    place = attacks["budgets"].index(tape["budget"])
    certificate = read_json(HERE / "idea-curve.json")
    bound = certificate["lower"][certificate["budgets"].index(tape["budget"])]
    assert (attacks["agent_sha256"], certificate["agent_sha256"]) == (fell["agent_sha256"], stood["agent_sha256"])
    words = (
        "*Two CartPole agents with the same initial state, attacked by the paper's Algorithm 1 with budget "
        f"{tape['budget']:g}. The undefended agent falls after {fell['steps']} steps; its mean return over "
        f"{attacks['n_episodes']:,} attacked episodes is {attacks['curve'][place]:.1f} of 200. The smoothed agent "
        f"stays up for all {stood['steps']} steps. With {certificate['confidence']:.0%} confidence, no attack with "
        f"this budget lowers its expected return below {format_lower(bound, 2)}.*"
    )
    return textwrap.fill(words, 118)


def main() -> None:
    """Record if asked to, and draw."""
    if "--record" in sys.argv[1:]:
        TAPE.write_text(json.dumps(record(), separators=(",", ":")) + "\n", encoding="utf-8")
    tape = json.loads(TAPE.read_text(encoding="utf-8"))
    most = max(one["steps"] for one in tape["agents"].values())
    steps = [*range(SLOW), *range(SLOW, most, 2), most - 1]
    pictures = [picture(tape, step) for step in steps]
    durations = [110 if step < SLOW else 60 for step in steps[:-1]] + [HOLD]
    for name, shown in (("episode", pictures), ("episode-narrow", [stacked(one) for one in pictures])):
        save(shown, durations, name)
        save([darkened(one) for one in shown], durations, f"{name}-dark")
    put(ROOT / "README.md", "episode", caption(tape))


def stacked(wide: Image.Image) -> Image.Image:
    """Return a picture with its panels one below the other, for narrow screens."""
    tall = Image.new("RGB", (WIDTH, 2 * HEIGHT), PAPER)
    for place in (0, 1):
        tall.paste(wide.crop((place * (WIDTH + 1), 0, (place + 1) * WIDTH, HEIGHT)), (place, place * HEIGHT))
    return tall


def darkened(light: Image.Image) -> Image.Image:
    """Return a picture for dark pages: white and black change places, every color keeps its hue."""
    colors = np.asarray(light).astype(int)
    ends = colors.max(axis=2, keepdims=True) + colors.min(axis=2, keepdims=True)
    inverted = colors + 255 - ends
    return Image.fromarray((NIGHT + inverted * (255 - NIGHT) // 255).astype(np.uint8))


def save(pictures: list[Image.Image], durations: list[int], name: str) -> None:
    """Write the moving picture, and its end as a still."""
    palette = pictures[len(pictures) // 2].quantize(48)
    drawn = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in pictures]
    path = HERE / f"{name}.gif"
    drawn[0].save(path, save_all=True, append_images=drawn[1:], duration=durations, loop=0, optimize=True)
    pictures[-1].quantize(48).save(HERE / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
