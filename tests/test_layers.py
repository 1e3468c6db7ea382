"""The import map of the design, read from the sources; and the light half works with nothing heavy installed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import surefoot

PACKAGE = Path(surefoot.__file__).parent
HEAVY = ("torch", "gymnasium", "stable_baselines3", "matplotlib", "ale_py")


def module_of(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(source, module):
    """Return every module that the source names in an import, wherever it stands, type checking included."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            base = node.module or ""
            inside = {f"{base}.{alias.name}" for alias in node.names}
            own = {name for name in inside if base.startswith("surefoot") and name in MODULES}
            found |= own or {base}
    return found


FILES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = set(FILES)
IMPORTS = {module: imports_of(path.read_text(), module) for module, path in FILES.items()}


def foreign(found, allowed):
    """Return the imports that are neither standard library nor allowed."""
    tops = {name for name in found if name.split(".")[0] not in sys.stdlib_module_names}
    return {name for name in tops if not any(name == top or name.startswith(f"{top}.") for top in allowed)}


LIGHT = ("numpy", "surefoot.errors")
# What people read is made from files, by whoever has numpy and scipy; figures alone need matplotlib.
REPORT = (
    *LIGHT,
    *(f"surefoot.{name}" for name in ("answers", "bounds", "certify", "contradiction", "episodes", "files", "report")),
    *(f"surefoot.{name}" for name in ("rounding", "threats", "versions")),
)
STUDY = (
    *LIGHT,
    "scipy",
    *(f"surefoot.{name}" for name in ("certify", "episodes", "files", "rounding", "shared", "study", "tasks")),
    *(f"surefoot.{name}" for name in ("versions", "zoo")),
)
MAP = {
    "surefoot.errors": (),
    "surefoot.files": LIGHT,
    "surefoot.episodes": (*LIGHT, "surefoot.files"),
    "surefoot.proof.rounding": (),
    "surefoot.proof.norms": ("surefoot.errors",),
    "surefoot.proof.certificate": (
        *LIGHT,
        "surefoot.proof.episode_budget",
        "surefoot.episodes",
        "surefoot.proof.rounding",
    ),
    **{
        f"surefoot.{name}": (
            *LIGHT,
            "surefoot.proof.bounds",
            "surefoot.proof.episode_budget",
            "surefoot.episodes",
            "surefoot.proof.rounding",
            "surefoot.proof.certificate",
        )
        for name in ("shared", "per_step")
    },
    "surefoot.play.gains": ("torch", "surefoot.errors"),
    "surefoot.proof.episode_budget": (
        *LIGHT,
        "surefoot.proof.bounds",
        "surefoot.proof.auto",
        "surefoot.episodes",
        "surefoot.proof.rounding",
    ),
    "surefoot.proof.auto": (*LIGHT, "surefoot.proof.bounds"),
    **{
        name: (*LIGHT, "scipy", "surefoot.proof.bounds") for name in MODULES if name.startswith("surefoot.proof.bounds")
    },
    "surefoot.play.channel": (*LIGHT, "torch", "surefoot.episodes", "surefoot.agents.policies"),
    "surefoot.agents.policies": (*LIGHT, "torch", "surefoot.files"),
    "surefoot.play.envs.base": (*LIGHT, "torch", "gymnasium", "surefoot.play.channel"),
    "surefoot.play.envs.atari.emulators": (*LIGHT, "ale_py", "surefoot.play.envs.atari.screens"),
    "surefoot.play.envs.atari.processes": (*LIGHT, "surefoot.play.envs.atari.emulators"),
    "surefoot.play.envs.atari.screens": ("numpy",),
    "surefoot.play.envs.atari.env": (
        *LIGHT,
        "torch",
        "gymnasium",
        "surefoot.play.envs.atari.emulators",
        "surefoot.play.envs.atari.processes",
        "surefoot.play.envs.atari.screens",
    ),
    "surefoot.agents.networks": (*LIGHT, "torch", "surefoot.agents.policies"),
    "surefoot.runs.folder": (*LIGHT, "surefoot.episodes", "surefoot.files"),
    "surefoot.play.workers": ("surefoot.errors",),
    "surefoot.verification.recompute.bands": ("numpy", "scipy"),
    "surefoot.verification.recompute.shared_budget": ("numpy", "scipy"),
    "surefoot.verification.recompute.step_budget": ("numpy", "scipy"),
    "surefoot.verification.recompute.auto": ("numpy", "surefoot.verification.recompute.bands"),
    "surefoot.verification.recompute.plans": ("numpy", "scipy"),
    "surefoot.verification.recompute.shares": ("numpy", "scipy", "surefoot.verification.recompute.plans"),
    "surefoot.verification.recompute.bets": (
        *("numpy", "scipy"),
        *(f"surefoot.verification.recompute.bands{name}" for name in ("", "_auto", "_plans", "_shares")),
    ),
    "surefoot.verification.recompute.choice": (
        *("numpy", "scipy"),
        *(f"surefoot.verification.recompute.bands{name}" for name in ("", "_auto", "_plans", "_shares")),
    ),
    "surefoot.verification.recompute.sequential": (
        *("numpy", "scipy"),
        *(f"surefoot.verification.{name}" for name in ("recompute", "recompute_bets", "recompute_plans")),
        "surefoot.verification.recompute.shares",
    ),
    "surefoot.verification.recompute.law": ("numpy", "scipy", "surefoot.verification.recompute.bands"),
    "surefoot.verification.recompute.sentences": (),
    "surefoot.verification.recompute.limits": ("surefoot.verification",),
    "surefoot.verification.recompute.run_files": LIGHT,
    "surefoot.verification.verdict": (),
    "surefoot.verification.recompute.claims": ("numpy", "surefoot.verification"),
    "surefoot.verification.verify": (*LIGHT, "surefoot.verification"),
    "surefoot.runs.taped_episode": (
        *LIGHT,
        "torch",
        *(f"surefoot.{name}" for name in ("attacks", "channel", "files", "play")),
    ),
    **{name: REPORT for name in MODULES if name.startswith("surefoot.report.") and not name.endswith(".figures")},
    # Raw numbers are read and judged by what proves; what measures them plays, what draws needs matplotlib.
    "study.paper": (),
    "study.tables": ("surefoot.proof.rounding",),
    "study.numbers": STUDY,
    "study.claims": STUDY,
    "study.sizes": ("surefoot.play.tasks", "surefoot.train.settings"),
    **{
        f"surefoot.study.{name}": (*STUDY, "matplotlib")
        for name in ("attacks", "certificates", "diagrams", "draw", "marks", "pong")
    },
    "study.figures.training": (*STUDY, "matplotlib", "surefoot.train.settings"),
    "study.figures.environments": (
        *STUDY,
        "matplotlib",
        "surefoot.play.envs.atari.env",
        "surefoot.play.envs.atari.emulators",
    ),
    "study.measure": (
        *STUDY,
        *(f"surefoot.{name}" for name in ("attacked", "play", "store", "train.run", "versions", "workers")),
    ),
    **{
        name: (*LIGHT, "torch", "surefoot.play.channel", "surefoot.agents.policies", "surefoot.attacks")
        for name in MODULES
        if name.startswith("surefoot.attacks")
    },
}


@pytest.mark.parametrize("module", sorted(MAP))
def test_each_room_imports_what_it_may(module):
    assert foreign(IMPORTS[module], MAP[module]) == set()


def test_nobody_imports_the_command():
    assert [module for module, found in IMPORTS.items() if "surefoot.cli.main" in found] == ["surefoot.__main__"]


def test_nobody_but_a_subcommand_imports_the_study():
    users = [m for m, found in IMPORTS.items() if any(name.startswith("surefoot.study") for name in found)]
    assert [module for module in users if not module.startswith("surefoot.study")] == ["study.__main__"]


def test_the_proving_half_imports_nothing_of_the_playing_half():
    playing = {
        f"surefoot.{name}"
        for name in ("atari", "channel", "emulators", "games", "play", "policies", "tasks", "train", "noise", "zoo")
    }
    for module in MODULES:
        if (
            module in ("surefoot.proof.episode_budget", "surefoot.proof.auto", "surefoot.episodes", "surefoot.files")
            or ".bounds" in module
        ):
            assert not playing & IMPORTS[module], module


def test_what_verifies_shares_no_code_with_what_proves():
    found = {module: IMPORTS[module] for module in MODULES if module.startswith("surefoot.verification")}
    assert "surefoot.proof.episode_budget" in found.pop(
        "surefoot.verification.same_code"
    )  # which says so, and must be asked for
    proving = ("surefoot.proof.bounds", "surefoot.proof.episode_budget", "surefoot.proof.rounding")
    assert len(found) >= 6
    assert [m for m, names in found.items() if any(name.startswith(proving) for name in names)] == []


def test_bounds_are_recomputed_with_no_other_line_of_surefoot():
    """The file alone, in an interpreter in which nothing of surefoot can be imported."""
    path = FILES["surefoot.verification.recompute.bands"]
    result = python(
        BLOCKED.replace(f"{HEAVY}", "('surefoot',)")
        + f"""
import runpy
import numpy as np
code = runpy.run_path({str(path)!r})
claim = code["Claim"]("binary", 0.05, 0.5, 0.0, 1.0, (0.0, 1.0))
lower, upper = code["recompute"](np.ones(100), claim)
print(round(float(lower.best[0]), 6))
"""
    )
    assert result.stdout.strip() == f"{0.05 ** (1 / 100):.6f}", result.stderr


def test_the_playing_half_proves_nothing():
    for module in (
        "atari",
        "channel",
        "emulators",
        "fleet",
        "games",
        "play",
        "policies",
        "tasks",
        "store",
        "workers",
        "zoo",
    ):
        found = IMPORTS[f"surefoot.{module}"]
        assert not any(name.startswith(("surefoot.proof.bounds", "surefoot.proof.episode_budget")) for name in found), (
            module
        )


@pytest.mark.parametrize(
    ("source", "bad"),
    [
        ("import torch", {"torch"}),
        ("from scipy.special import ndtri", {"scipy.special"}),
        ("def f():\n    from surefoot.play import Plan", {"surefoot.play.loop"}),
        ("from surefoot import play", {"surefoot.play.loop"}),
        ("import os\nimport numpy as np\nfrom surefoot.errors import InputError", set()),
    ],
)
def test_planted_imports_are_found(source, bad):
    assert foreign(imports_of(source, "planted"), LIGHT) == bad


def python(script):
    """Run a script in a fresh interpreter, warnings being errors."""
    call = [sys.executable, "-W", "error", "-c", script]
    return subprocess.run(call, check=False, capture_output=True, text=True, timeout=60)


def test_importing_surefoot_loads_nothing_heavy():
    result = python(f"import sys, surefoot; print([m for m in {HEAVY} if m in sys.modules])")
    assert result.stdout.strip() == "[]", result.stderr


BLOCKED = f"""
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Nothing())
"""


def test_returns_are_certified_with_nothing_heavy_installed():
    result = python(
        BLOCKED
        + """
import surefoot
episodes = surefoot.Episodes.of([200.0] * 1000, sigma=0.2, floor=0, ceiling=200)
certificate = surefoot.certify(episodes, budgets=[0.0, 0.2], confidence=0.95)
assert 150 < certificate.lower[1] < certificate.lower[0] < 200 == certificate.estimate
print("certified")
try:
    import torch
except ModuleNotFoundError:
    print("without torch")
"""
    )
    assert result.stdout.splitlines()[:2] == ["certified", "without torch"], result.stderr
