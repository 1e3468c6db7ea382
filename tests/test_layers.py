"""What may import what, read from the sources; and the proving half works with nothing heavy installed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import surefoot

PACKAGE = Path(surefoot.__file__).parent
HEAVY = ("torch", "gymnasium", "stable_baselines3", "matplotlib", "ale_py", "onnxruntime", "ray")


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


def unexpected(found, allowed):
    """Return the imports that are neither standard library nor allowed."""
    tops = {name for name in found if name.split(".")[0] not in sys.stdlib_module_names}
    return {name for name in tops if not any(name == top or name.startswith(f"{top}.") for top in allowed)}


BASE = ("numpy", "surefoot.errors", "surefoot.files", "surefoot.episodes")
PLANNER = ("surefoot.proof.planning", "surefoot.proof.bounds")

# What a module may import besides the standard library and its own folder; the longest name that fits decides.
FOLDERS = {
    "surefoot": ("surefoot",),
    "surefoot.__main__": ("surefoot.cli.main",),
    "surefoot.errors": (),
    "surefoot.files": ("numpy", "surefoot.errors"),
    "surefoot.episodes": ("numpy", "surefoot.errors", "surefoot.files"),
    "surefoot.agents": (*BASE, "torch"),
    "surefoot.agents.onnx_agents": (*BASE, "torch", "onnxruntime", "surefoot.agents"),
    "surefoot.agents.sb3": (*BASE, "torch", "gymnasium", "stable_baselines3", "yaml", "surefoot.agents"),
    "surefoot.play": (*BASE, "torch", "gymnasium", "surefoot.agents"),
    **{f"surefoot.play.ray_{name}": (*BASE, "ray", "surefoot.play") for name in ("cluster", "nodes")},
    "surefoot.play.envs.atari": (*BASE, "torch", "gymnasium", "ale_py", "surefoot.play"),
    "surefoot.attacks": (*BASE, "torch", "surefoot.agents", "surefoot.play"),
    "surefoot.train": (
        *(*BASE, "torch", "gymnasium", "stable_baselines3"),
        *(f"surefoot.{name}" for name in ("agents", "play", "proof")),
    ),
    "surefoot.proof": (*BASE, "scipy"),
    "surefoot.proof.bounds": ("numpy", "scipy", "surefoot.errors"),
    "surefoot.proof.planning": ("numpy", "scipy", "surefoot.errors", "surefoot.proof.bounds"),
    "surefoot.report": (*BASE, "surefoot.proof"),
    "surefoot.proof.figure": (*BASE, "matplotlib", "surefoot.proof"),
    "surefoot.proof.certificate": (*BASE, "scipy", "matplotlib", "pandas", "surefoot.proof"),
    "surefoot.verification": (*BASE, "torch", "gymnasium", "surefoot.agents", "surefoot.play"),
    "surefoot.verification.plan_again": (*BASE, *PLANNER, "surefoot.verification"),
    "surefoot.verification.recompute": ("numpy", "scipy", "surefoot.errors", "surefoot.files"),
    "surefoot.runs": (
        *(*BASE, "torch"),
        *(f"surefoot.{name}" for name in ("agents", "play", "attacks", "proof", "report")),
    ),
    "surefoot.cli": ("numpy", "rich", "argcomplete", "gymnasium", "surefoot"),
}


def folder_of(module):
    """Return the longest name in the table that the module is, or is in."""
    fitting = [name for name in FOLDERS if module == name or module.startswith(f"{name}.")]
    return max(fitting, key=len)


def allowed(module):
    folder = folder_of(module)
    own = () if folder in ("surefoot", module) else (folder,)
    return (*FOLDERS[folder], *own)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_each_module_imports_what_its_folder_may(module):
    if module != "surefoot":
        assert folder_of(module) != "surefoot", f"{module} is in no folder of the table"
    assert unexpected(IMPORTS[module], allowed(module)) == set()


def test_no_module_but_the_entry_point_imports_the_command():
    importing = [m for m, found in IMPORTS.items() if any(name.startswith("surefoot.cli") for name in found)]
    assert [m for m in importing if not m.startswith("surefoot.cli")] == ["surefoot.__main__"]


def test_the_package_never_imports_the_study():
    users = [m for m, found in IMPORTS.items() if any(name.split(".")[0] == "study" for name in found)]
    assert users == []


def find_cycle(imports):
    """Return modules of which each imports the next and the last the first, or none."""
    done = set()

    def walk(module, path):
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        for name in sorted(imports.get(module, ())):
            found = walk(name, [*path, module])
            if found:
                return found
        done.add(module)
        return []

    return next((found for found in (walk(module, []) for module in sorted(imports)) if found), [])


KERNEL = "surefoot.proof.bounds"
PLANS = "surefoot.proof.planning"


def test_the_kernel_imports_no_plan_and_neither_has_a_cycle():
    kernel = {module: found for module, found in IMPORTS.items() if module.startswith(KERNEL)}
    plans = {module: found for module, found in IMPORTS.items() if module.startswith(PLANS)}
    assert len(kernel) >= 10
    assert len(plans) >= 8
    for module, found in kernel.items():
        assert {name for name in found if name.startswith("surefoot")} <= {"surefoot.errors", *kernel}, module
    assert find_cycle({**kernel, **plans}) == []


def test_planted_cycles_are_found():
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"numpy"}}) == []
    assert find_cycle({"a": {"b"}, "b": {"c", "d"}, "c": {"numpy"}, "d": {"b"}}) == ["b", "d"]
    inside = {name: found for name, found in IMPORTS.items() if name.startswith((KERNEL, PLANS))}
    assert f"{KERNEL}.samples" in find_cycle({**inside, f"{KERNEL}.samples": {f"{PLANS}.strategies"}})


def test_the_kernel_can_be_read_in_ten_minutes():
    files = [path.read_text().splitlines() for module, path in FILES.items() if module.startswith(KERNEL)]
    lines = sum(bool(line.strip()) for file in files for line in file)
    assert lines <= 1_300


def test_packages_are_empty():
    """Emulator processes import through them and must not load torch."""
    packages = [path for module, path in FILES.items() if path.name == "__init__.py" and module != "surefoot"]
    assert len(packages) >= 12
    for path in packages:
        body = ast.parse(path.read_text()).body
        assert len(body) == 1, path
        assert isinstance(body[0], ast.Expr), path


def test_the_top_level_is_small_and_no_folder_is_crowded():
    top = [entry for entry in PACKAGE.iterdir() if entry.name not in ("__pycache__", "py.typed")]
    assert len([entry for entry in top if not entry.name.startswith("__")]) <= 12, sorted(e.name for e in top)
    for folder in {path.parent for path in FILES.values()}:
        assert len(list(folder.glob("*.py"))) <= 20, folder


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


@pytest.mark.parametrize(
    ("source", "bad"),
    [
        ("import torch", {"torch"}),
        ("from scipy.special import ndtri", {"scipy.special"}),
        ("def f():\n    from surefoot.play.loop import play_block", {"surefoot.play.loop"}),
        ("from surefoot.play import loop", {"surefoot.play.loop"}),
        ("import os\nimport numpy as np\nfrom surefoot.errors import InputError", set()),
    ],
)
def test_planted_imports_are_found(source, bad):
    assert unexpected(imports_of(source, "planted"), BASE) == bad


def python(script):
    """Run a script in a fresh interpreter, warnings being errors."""
    call = [sys.executable, "-W", "error", "-c", script]
    return subprocess.run(call, check=False, capture_output=True, text=True, timeout=60)


def test_importing_surefoot_loads_nothing_heavy():
    result = python(f"import sys, surefoot; print([m for m in {HEAVY} if m in sys.modules])")
    assert result.stdout.strip() == "[]", result.stderr


def test_the_command_loads_the_study_only_to_run_it():
    code = "import sys; from surefoot.cli.main import build_parser; build_parser()"
    result = python(f"{code}; print([m for m in sys.modules if m.split('.')[0] == 'study'])")
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
episodes = surefoot.Episodes.from_returns([200.0] * 1000, sigma=0.2, floor=0, ceiling=200)
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
