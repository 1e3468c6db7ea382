"""Figure 3: the environments, as they are and as a smoothed agent sees them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from study.numbers import Study
from surefoot.errors import InputError
from surefoot.play.envs.atari.emulators import Cartridge
from surefoot.play.envs.atari.env import AtariEnvironment
from surefoot.play.tasks import TASKS

SEED = 3
# One task for each environment, what it is called, the sigma that is shown, and when an Atari frame is taken.
SHOWN = (
    ("cartpole-5", ("cartpole-5", "cartpole-1"), "CartPole", 0.2, 0),
    ("mountain-car", ("mountain-car",), "Mountain Car", 0.2, 0),
    ("pong-1r", ("pong-1r", "pong-full"), "Pong", 0.1, 35),
    ("freeway", ("freeway",), "Freeway, hard", 0.1, 30),
)
CART = (0.4, 0.6, 0.08, 0.4)  # position, speed, angle, spin
CAR = (-0.9, 0.02)  # position, speed
ON_BOTH = "#767676"
Picture = NDArray[np.uint8]


def environments(_study: Study, tasks: Sequence[str]) -> tuple[Figure, None]:
    """Draw one moment of each environment, and below it the same moment with smoothing noise."""
    shown = [row for row in SHOWN if set(row[1]) & set(tasks)]
    # One environment alone has its two moments side by side.
    grid = (1, 2) if len(shown) == 1 else (2, len(shown))
    figure = Figure(figsize=(3.4 * grid[1], 3.6 * grid[0]), layout="constrained")
    FigureCanvasAgg(figure)
    # Pictures keep their colors on a dark page, so what is around them has to be readable on both.
    pictures = all(TASKS[row[0]].cartridge is not None for row in shown)
    figure.patch.set_alpha(0.0 if pictures else 1.0)
    for number, (task, _, title, sigma, steps) in enumerate(shown):
        panels = [figure.add_subplot(*grid, number + 1 + row * len(shown)) for row in (0, 1)]
        titles = (title, f"observed with noise, sigma {sigma:g}")
        for axes, words in zip(panels, titles, strict=True):
            axes.set_title(words, fontsize=10, color=ON_BOTH if pictures else "black")
        for axes in panels:
            axes.set(xticks=[], yticks=[])
        _moment(panels, task, sigma, steps)
    return figure, None


def _moment(panels: Sequence[Axes], task: str, sigma: float, steps: int) -> None:
    random, cartridge = np.random.default_rng(SEED), TASKS[task].cartridge
    if cartridge is not None:
        _pictures(panels, cartridge, sigma, steps, random)
        return
    draw, state = (_cartpole, np.array(CART)) if task.startswith("cartpole") else (_mountain_car, np.array(CAR))
    draw(panels[0], state)
    draw(panels[1], state + sigma * random.standard_normal(state.size))


def _pictures(
    panels: Sequence[Axes], cartridge: Cartridge, sigma: float, steps: int, random: np.random.Generator
) -> None:
    try:
        screen, frame = atari_moment(cartridge, steps)
    except InputError:
        for axes in panels:
            axes.text(0.5, 0.5, "needs ale-py:\npip install '.[all]'", ha="center", transform=axes.transAxes)
        return
    panels[0].imshow(screen, aspect=210 / 160 * 0.9)
    noisy = frame / 255 + sigma * random.standard_normal(frame.shape)
    panels[1].imshow(np.clip(noisy, 0, 1), cmap="gray", vmin=0, vmax=1)


def atari_moment(cartridge: Cartridge, steps: int) -> tuple[Picture, Picture]:
    """Return the screen in colour and the agent's 84 x 84 frame after some steps of moving up."""
    environment = AtariEnvironment(cartridge)
    frame, _ = environment.reset(seed=SEED)
    for step in range(steps):
        frame, *_ = environment.step(1 if cartridge.rom == "freeway" else 2 + step % 2)
    assert environment.emulators is not None
    screen: Picture = environment.emulators.machines[0].emulator.getScreenRGB()
    environment.emulators.close()
    return screen, frame


def _cartpole(axes: Axes, state: NDArray[np.float64]) -> None:
    place, angle = float(state[0]), float(state[2])
    axes.axhline(0, color="black", lw=1)
    for edge in (-2.4, 2.4):
        axes.axvline(edge, color="0.6", lw=1, ls=":")
    axes.add_patch(Rectangle((place - 0.25, -0.15), 0.5, 0.3, fc="0.25"))
    tip = (place + 1.0 * math.sin(angle), 0.15 + 1.0 * math.cos(angle))
    axes.plot([place, tip[0]], [0.15, tip[1]], color="#b45f06", lw=6, solid_capstyle="round")
    axes.plot([place], [0.15], "o", color="white", ms=4)
    # Speeds are observed too: arrows show them.
    axes.annotate("", (place + 0.5 * state[1], -0.5), (place, -0.5), arrowprops={"arrowstyle": "->"})
    axes.text(place, -0.62, f"speed {state[1]:+.2f}, spin {state[3]:+.2f}", ha="center", va="top", fontsize=8)
    axes.set(xlim=(-2.6, 2.6), ylim=(-2.2, 3.0), aspect="equal")


def _mountain_car(axes: Axes, state: NDArray[np.float64]) -> None:
    ground = np.linspace(-1.2, 0.6, 200)
    axes.plot(ground, np.sin(3 * ground), color="black", lw=1.5)
    place = float(np.clip(state[0], -1.2, 0.6))
    axes.plot([place], [math.sin(3 * place) + 0.09], "o", ms=14, color="#0b5394")
    goal = 0.45
    axes.plot([goal, goal], [math.sin(3 * goal), math.sin(3 * goal) + 0.45], color="0.3", lw=1.5)
    axes.plot([goal], [math.sin(3 * goal) + 0.42], ">", color="#b45f06", ms=9)
    outside = " (outside)" if place != float(state[0]) else ""
    axes.text(-0.3, 1.35, f"position {state[0]:+.2f}{outside}, speed {state[1]:+.3f}", ha="center", fontsize=8)
    axes.set(xlim=(-1.3, 0.7), ylim=(-1.2, 1.6))
