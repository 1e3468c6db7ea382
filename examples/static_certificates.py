"""Why certificates for fixed inputs fail for agents: the second move may depend on the first noise.

An environment of two steps with one number observed at each: the agent wins if both noisy numbers have the same sign.
Against every perturbation that is fixed in advance the win probability stays above the dotted claim; an attacker that
waits for the first noise goes below it. Theorem 1 holds for both. (The paper's Figure 1 and Appendix B.)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.special import ndtr

from surefoot.proof.bounds.gaussian_shift import shift_down

SIGMA, BUDGETS = 1.0, np.linspace(0, 2.5, 26)


def play(rng: np.random.Generator, samples: int, budget: float) -> np.ndarray:
    """Return perturbation plus noise of both steps under the attacker that pushes against the first noise."""
    first = rng.normal(0, SIGMA, samples)
    second = rng.normal(-budget * np.sign(first), SIGMA)
    return np.stack((first, second))


def best_fixed(budget: float) -> float:
    """Return the lowest win probability over perturbations fixed in advance: what a static certificate would claim."""
    angles = np.linspace(0, np.pi, 721)
    up = ndtr(budget * np.stack((np.cos(angles), np.sin(angles))) / SIGMA)
    return float((up.prod(axis=0) + (1 - up).prod(axis=0)).min())


def main(samples: int = 100_000, out: Path | None = Path("static-certificates.png")) -> dict[str, list[float]]:
    """Simulate, draw, and return the three curves over the budgets."""
    rng = np.random.default_rng(0)
    played = [play(rng, samples, budget) for budget in BUDGETS]
    attacked = [float((z.prod(axis=0) > 0).mean()) for z in played]
    claimed, theorem = [best_fixed(budget) for budget in BUDGETS], shift_down(0.5, BUDGETS / SIGMA).tolist()
    if out is not None:
        figure, few = Figure(figsize=(9, 3.8), layout="constrained"), slice(0, 2_000)
        scatter, curves = figure.subplots(1, 2)
        scatter.plot(*play(rng, samples, 0.0)[:, few], ".", ms=2, color="#7f9fbf", label="no attacker: isotropic")
        scatter.plot(*played[15][:, few], "x", ms=3, color="#b45f06", label="adaptive attacker, B = 1.5: not")
        scatter.set(xlabel="first perturbation plus noise", ylabel="second perturbation plus noise", aspect="equal")
        curves.plot(BUDGETS, claimed, "k:", label="claim for fixed perturbations")
        curves.plot(BUDGETS, attacked, "x", color="#b45f06", label="adaptive attacker (simulated)")
        curves.plot(BUDGETS, theorem, color="#0b5394", label="Theorem 1: every attacker")
        curves.set(xlabel="attack budget B (sigma = 1)", ylabel="probability to win", ylim=(0, 0.55))
        scatter.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))
        curves.legend(fontsize=8)
        figure.savefig(out, dpi=130)
        print(f"budget 1.5: claimed {claimed[15]:.3f}, under attack {attacked[15]:.3f} (estimate); figure: {out}")
    return {"claimed": claimed, "attacked": attacked, "theorem": theorem}


if __name__ == "__main__":
    main()
