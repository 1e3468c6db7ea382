"""``surefoot doctor``: versions, GPU, which extras are installed, and what to install for what is missing."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from surefoot import __version__
from surefoot.cli.options import add_json, print_json
from surefoot.cli.parser import add_command
from surefoot.provenance import install_command

# Packages of each extra, and what it is for.
EXTRAS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "plot": (("matplotlib",), "figures as PNG, PDF and SVG"),
    "frames": (("pandas",), "certificates as tables of pandas"),
    "play": (("torch", "gymnasium", "PyYAML"), "running, attacking and verifying agents"),
    "envs": (("box2d", "mujoco"), "LunarLander, MuJoCo and the like"),
    "atari": (("ale-py",), "Atari"),
    "onnx": (("onnxruntime",), "agents in ONNX files"),
    "ray": (("ray",), "running on several machines"),
    "cases": (("crazyflow",), "simulators of published robots"),
    "completion": (("argcomplete",), "completion of options in the shell"),
    "train": (("stable-baselines3",), "training with Stable-Baselines3, and unpickling its agents"),
}
REQUIRED = ("numpy", "scipy", "rich")


def add_doctor(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "doctor",
        "show versions, the GPU, and what to install for what is missing",
        usage="[options]",
        examples=("surefoot doctor", "surefoot doctor --json", "surefoot doctor > doctor.txt"),
    )
    add_json(parser)
    parser.set_defaults(run=run_doctor)


def run_doctor(arguments: argparse.Namespace) -> None:
    """Print what is installed and what is not."""
    found = examine_installation()
    if arguments.json:
        print_json({"schema": 1, **found})
        return
    print(f"surefoot {found['surefoot']}, Python {found['python']}, {found['cores']} cores, {found['platform']}")
    print(f"{found['gpu']['says']}\n")
    print("ok       " + _list_packages(found["required"]))
    for name, extra in found["extras"].items():
        mark = "ok" if extra["installed"] else "MISSING"
        print(f"{mark:8} {name:10} {_list_packages(extra['packages'])}")
        if not extra["installed"]:
            print(f"{'':19} for {extra['purpose']}: {extra['install']}")


def _list_packages(packages: Mapping[str, str | None]) -> str:
    return ", ".join(f"{package} {number or '(missing)'}" for package, number in packages.items())


def examine_installation() -> dict[str, Any]:
    """Return versions, GPU and extras as JSON data."""
    extras = {}
    for name, (packages, purpose) in EXTRAS.items():
        there = {package: _find_version(package) for package in packages}
        extras[name] = {
            "installed": all(there.values()),
            "packages": there,
            "purpose": purpose,
            "install": install_command(name),
        }
    return {
        "surefoot": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "required": {package: _find_version(package) for package in REQUIRED},
        "extras": extras,
        "gpu": _find_gpus(),
    }


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _find_gpus() -> dict[str, Any]:
    """Return the GPUs that torch can use, and why there are none."""
    # This command is for installations in which something is missing, torch included.
    try:
        from surefoot.play.plan import gpus
    except ImportError:
        return {"devices": [], "says": "GPU: unknown, because torch is not installed"}
    names = gpus()
    return {"devices": names, "says": f"GPU: {', '.join(names) or 'none that torch can use'}"}
