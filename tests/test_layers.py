"""What may import what, read from the sources; and the proving half works with nothing heavy installed.

python tests/test_layers.py    # after a change of the folders: write the table of docs/design.md
"""

import ast
import re
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


def is_type_checking(node):
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def statements(tree, *, types):
    """Yield every node of a syntax tree; without those that only a type checker reads unless ``types``."""
    for node in ast.iter_child_nodes(tree):
        if types or not is_type_checking(node):
            yield node
            yield from statements(node, types=types)


def imports_of(source, module, *, types=True):
    """Return every module that the source names in an import, wherever it stands; type checking included by default."""
    found = set()
    for node in statements(ast.parse(source), types=types):
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


def cycles(graph):
    """Return the groups of modules that import one another, each sorted; importing includes that inside functions."""
    reached = {}
    for start in graph:
        reached[start] = set()
        waiting = [start]
        while waiting:
            for name in graph[waiting.pop()] & graph.keys() - reached[start]:
                reached[start].add(name)
                waiting.append(name)
    in_cycles = [start for start in graph if start in reached[start]]
    groups = {tuple(sorted(name for name in reached[one] if one in reached[name])) for one in in_cycles}
    return sorted(groups)


def unexpected(found, allowed):
    """Return the imports that are neither standard library nor allowed."""
    tops = {name for name in found if name.split(".")[0] not in sys.stdlib_module_names}
    return {name for name in tops if not any(name == top or name.startswith(f"{top}.") for top in allowed)}


BASE = ("numpy", *(f"surefoot.{name}" for name in ("errors", "files", "provenance", "noise", "episodes")))
TORCH = ("torch", "surefoot.compute")
SHOWN = tuple(f"surefoot.report.{name}" for name in ("certificate_text", "comparison_text", "certificate_figure"))
PLANNER = ("surefoot.proof.planning", "surefoot.proof.bounds")

# What a module may import besides the standard library and its own folder; the longest name that fits decides.
FOLDERS = {
    "surefoot": ("surefoot",),
    "surefoot.__main__": ("surefoot.cli.main",),
    "surefoot.errors": (),
    "surefoot.provenance": (),
    "surefoot.files": ("numpy", "surefoot.errors", "surefoot.provenance"),
    "surefoot.noise": ("numpy", "surefoot.errors"),
    "surefoot.episodes": ("numpy", "surefoot.errors", "surefoot.files", "surefoot.noise"),
    "surefoot.compute": ("torch",),
    "surefoot.agents": (*BASE, *TORCH),
    "surefoot.agents.onnx_agents": (*BASE, *TORCH, "onnxruntime", "surefoot.agents"),
    "surefoot.agents.sb3": (*BASE, *TORCH, "gymnasium", "stable_baselines3", "yaml", "surefoot.agents"),
    "surefoot.play": (*BASE, *TORCH, "gymnasium", "surefoot.agents"),
    "surefoot.play.ray_cluster": (*BASE, *TORCH, "ray", "surefoot.play"),
    "surefoot.play.envs.atari": (*BASE, *TORCH, "gymnasium", "ale_py", "surefoot.play"),
    "surefoot.attacks": (*BASE, *TORCH, "surefoot.agents", "surefoot.play"),
    "surefoot.train": (
        *(*BASE, *TORCH, "gymnasium", "stable_baselines3"),
        *(f"surefoot.{name}" for name in ("agents", "play", "proof")),
    ),
    "surefoot.proof": (*BASE, "scipy"),
    # How a certificate is shown, imported when it is shown; matplotlib and pandas are named as types only.
    "surefoot.proof.certificate": (*(*BASE, "surefoot.proof", *SHOWN), "matplotlib", "pandas"),
    "surefoot.proof.comparison": (*(*BASE, "surefoot.proof", *SHOWN), "matplotlib"),
    "surefoot.proof.bounds": ("numpy", "scipy", "surefoot.errors"),
    "surefoot.proof.planning": ("numpy", "scipy", "surefoot.errors", "surefoot.proof.bounds"),
    "surefoot.report": (*BASE, "surefoot.proof"),
    "surefoot.report.certificate_text": (*BASE, "pandas", "surefoot.proof", "surefoot.report.offsets"),
    "surefoot.report.certificate_figure": (*BASE, "matplotlib", "surefoot.proof", "surefoot.report.offsets"),
    "surefoot.verification": (*BASE, *TORCH, "gymnasium", "surefoot.agents", "surefoot.play"),
    "surefoot.verification.attack_again": (
        *(*BASE, *TORCH),
        *(f"surefoot.{name}" for name in ("agents", "play", "attacks", "verification")),
    ),
    "surefoot.verification.plan_again": (*BASE, *PLANNER, "surefoot.verification"),
    "surefoot.verification.recompute": ("numpy", "scipy", "surefoot.errors", "surefoot.files"),
    "surefoot.runs": (
        *(*BASE, *TORCH, "filelock"),
        *(f"surefoot.{name}" for name in ("agents", "play", "attacks", "proof", "report")),
    ),
    "surefoot.api": (
        *(*BASE, *TORCH),
        *(f"surefoot.{name}" for name in ("agents", "play", "attacks", "proof", "report", "runs")),
    ),
    "surefoot.cli": ("numpy", "rich", "argcomplete", "gymnasium", "surefoot"),
}


# What a line of code is about that goes into a module or folder: the second column of the table of docs/design.md.
ABOUT = {
    "surefoot.errors": "the exception for bad input; text of others made harmless",
    "surefoot.provenance": "what a result was made with: versions, hashes, the state of the checkout",
    "surefoot.files": "files written whole or not at all; strict JSON; arrays below a size",
    "surefoot.noise": "the noise on observations: `Noise`, one sigma or one per feature",
    "surefoot.episodes": "the episode data that connect the two halves: `Episodes`, `Baseline`",
    "surefoot.compute": "tensors of rows, threads, cores, kinds of processors",
    "surefoot.agents": "anything that acts: networks, the spaces they are made for (shapes, parts, units), "
    "statistics of observations, memory (frame stacks, recurrent states), loading an agent and checking what it "
    "answers, bundles, the deployed smoothed agent",
    "surefoot.agents.sb3": "agents of Stable-Baselines3: reading its files, pickles and the folders of published "
    "agents, rebuilding its networks, writing its zips",
    "surefoot.play": "running episodes: what is run (`Task`, `Plan`), how an environment becomes a task, floors, "
    "seeds (`streams`), perturbation + ledger + noise (`channel`), the loop, blocks, workers and clusters, what is "
    "read at reset, the open-loop baseline",
    "surefoot.play.envs": "one environment or simulator, or one of many rows: dynamics, resets, how it is made, its "
    "trial, spaces in parts made flat, a condition that makes an episode a success, wrappers",
    "surefoot.play.envs.atari": "Atari games: emulators, their processes, pixels",
    "surefoot.attacks": "what an attacker tries: from a `View` to a perturbation, its search, direction and timing; "
    "learning an attacker; the table of attacks",
    "surefoot.train": "training agents under noise: trainers with their actors and critics, presets and settings, "
    "checkpoints and curves, choosing weights",
    "surefoot.proof": "what is asked (budgets, norm, units, threat model, method) and the certificate or comparison "
    "that answers, as data; stopping; forecasts; rounding of numbers, numbers as text",
    "surefoot.proof.bounds": "what makes a bound true: a formula about probabilities, alpha, quantiles, capital; "
    "scores of returns; settling bets",
    "surefoot.proof.planning": "a choice that only decides how tight a bound is: method, guesses, bet sizes "
    "(stakes), which claims are worth a bet, shares",
    "surefoot.report": "a sentence, table, chart or page for people, made from certificates, comparisons, attack "
    "results and recorded episodes",
    "surefoot.runs": "sequences like run, certify, write, in memory or in a run directory: its file names, lock, "
    "resuming, `run.json`, shares; a grid of attacks; reading files of returns; recording one episode for the report",
    "surefoot.verification": "checking someone's certificate: its limits and claims, rerun blocks, fresh episodes, "
    "plans made again; the verdict",
    "surefoot.verification.recompute": "computing a bound, or the sentence of a certificate, a second time, by other "
    "code, from given plans; reading the files that are checked, and which of their values must agree",
    "surefoot.api": "what a command does, as public functions with their arguments and defaults: certify_run, "
    "attack, plan, tune, compare, measure_faults; what episodes cost",
    "surefoot.cli": "options and how their values are read, printing, exit codes; one file per command",
}
BESIDE = {
    "study": "the paper's experiments: raw numbers (`study/data/`), figures, tables, claims; not in the wheel",
    "zoo": "pretrained agents and the programs that made them (`zoo/training/`)",
    "bench": "benchmarks with results",
    "cases": "systems with sensors, units and attackers, run end to end through the public interface",
    "examples": "short programs",
    "docs": "this site",
    "tests": "tests, in the same folders as the code",
}
PAGE = PACKAGE.parents[1] / "docs" / "design.md"
TABLE = re.compile(r"(?<=<!-- written by tests/test_layers.py -->\n\n).*?(?=\n\n<!-- end of the table -->)", re.DOTALL)


def words_of(imports):
    """Return imports as a list for readers: libraries, then modules of ours."""
    if "surefoot" in imports:
        return "everything"
    libraries = [name for name in imports if not name.startswith("surefoot")]
    ours = [f"`{name.removeprefix('surefoot.').replace('.', '/')}`" for name in imports if name.startswith("surefoot.")]
    return ", ".join(libraries + ours) or "nothing"


def table():
    """Return the table of the folders, each with what it is about and what it may import."""
    lines = ["| folder | a line of code goes here if it is about | may import |", "|---|---|---|"]
    for name, about in ABOUT.items():
        folder = FILES[name].name == "__init__.py"
        path = name.removeprefix("surefoot.").replace(".", "/") + "/" * folder
        imports = FOLDERS[folder_of(name)]
        may_import = words_of(imports)
        # Single modules of the folder that may import more.
        for module, own in FOLDERS.items():
            if folder and module.rpartition(".")[0] == name and module not in ABOUT:
                more = [one for one in own if one not in (*imports, name)]
                may_import += f"; in `{module.rpartition('.')[2]}` also {words_of(more)}"
        lines.append(f"| `{path}` | {about} | {may_import} |")
    lines += [f"| `{name}/` | {about} | the package |" for name, about in BESIDE.items()]
    return "\n".join(lines)


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


def test_the_table_of_the_folders_is_complete_and_up_to_date():
    packages = {name for name, path in FILES.items() if path.name == "__init__.py"} - {"surefoot"}
    single = {name for name in MODULES if name.count(".") == 1 and name != "surefoot.__main__"}
    assert set(ABOUT) == packages | single
    assert all((PAGE.parents[1] / name).is_dir() for name in BESIDE)
    (written,) = TABLE.findall(PAGE.read_text(encoding="utf-8"))
    assert written == table(), "run: python tests/test_layers.py"


def test_no_modules_import_one_another():
    """Not even late, inside functions; names that only a type checker reads do not count.

    One exception: a certificate shows itself and reads files of any kind, by one-liners that import late what does it.
    """
    graph = {module: imports_of(path.read_text(), module, types=False) for module, path in FILES.items()}
    graph["surefoot.proof.certificate"] -= {*SHOWN, "surefoot.proof.threats"}
    graph["surefoot.proof.comparison"] -= {*SHOWN}
    assert cycles(graph) == []


def test_planted_cycles_are_found():
    sources = {
        "surefoot.errors": "def raise_it():\n    import surefoot.files",
        "surefoot.files": "from surefoot import episodes",
        "surefoot.episodes": "import numpy\nfrom surefoot.errors import InputError",
        "surefoot.compute": "if TYPE_CHECKING:\n    from surefoot.agents.memory import Memory",
        "surefoot.agents.memory": "from surefoot.compute import row_norms\nfrom surefoot.errors import InputError",
    }
    graph = {module: imports_of(source, module, types=False) for module, source in sources.items()}
    assert cycles(graph) == [("surefoot.episodes", "surefoot.errors", "surefoot.files")]
    with_types = {module: imports_of(source, module) for module, source in sources.items()}
    assert ("surefoot.agents.memory", "surefoot.compute") in cycles(with_types)


def test_the_kernel_can_be_read_in_a_quarter_of_an_hour():
    files = [
        path.read_text().splitlines() for module, path in FILES.items() if module.startswith("surefoot.proof.bounds")
    ]
    lines = sum(bool(line.strip()) for file in files for line in file)
    assert lines <= 1_860


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
    assert len([entry for entry in top if not entry.name.startswith("__")]) <= 16, sorted(e.name for e in top)
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
    """Nor what shows a certificate, which is imported when one is shown."""
    late = (*HEAVY, "surefoot.report", "pandas")
    result = python(f"import sys, surefoot; print([m for m in sys.modules if m.startswith({late})])")
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


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
