"""Whether a release would work: build it, install it elsewhere, and do there what README and guides show.

    python bench/release_check.py                       # minutes: two clean environments
    python bench/release_check.py --python python3.13   # with another interpreter

Wheel and source distribution are built, each is installed into an environment of its own outside of the repository, and
there the commands and the code of the README are run, a bundle is verified, and an attack, an environment and an agent
of Dict observations of one's own are used.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 20_000_000  # of the source distribution
BUILD = "import hatchling.build as b, sys; b.build_wheel(sys.argv[1]); b.build_sdist(sys.argv[1])"
# Of the README, with options that make them short.
SHORTER = {"train": ["--time", "10s"]}
COMMANDS = (
    "certify --env CartPole-v1 --agent model.zip --sigma 0.1 --episodes 300 --out bundle --bundle",
    "report bundle --format md",
    "report bundle --evidence",
    "attack cartpole-1 --method own_attack:TiltAttack --budgets 0.5,1 --episodes 50 --out attacked",
    "certify --env env_factory:make_tank --env-kwargs '{\"leak\": 0.1}' --reward-range=-1,0 --sigma 0.05 "
    "--agent env_factory:controller --episodes 50 --out tank",
    "certify --env env_factory:make_tank --env-kwargs '{\"leak\": 0.1}' --reward-range=-1,0 --sigma level=0.05 "
    "--agent dict.zip --episodes 50 --out tank-dict",
    "doctor",
)
DEPLOY = """
import env_factory, surefoot
agent = surefoot.smooth(surefoot.as_policy("dict.zip", n_stack=1), sigma={"level": 0.05})
env = env_factory.make_tank(0.1)
observation, _ = env.reset(seed=0)
over = False
while not over:
    observation, _, ended, cut, _ = env.step(agent.predict(observation)[0])
    over = ended or cut
"""
# Agents of Stable-Baselines3, which the clean environment does not need.
MODELS = """
import sys
import gymnasium
from stable_baselines3 import PPO
import env_factory
PPO("MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=256, seed=0).learn(512).save("model.zip")
PPO("MultiInputPolicy", env_factory.make_tank(0.1), n_steps=256, seed=0).learn(512).save("dict.zip")
"""


def run_command(*call: object, where: Path) -> str:
    """Run a command and return what it printed; stop with its output if it fails."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(part) for part in call]
    done = subprocess.run(words, cwd=where, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(words)} failed in {where}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(interpreter: str, folder: Path) -> list[Path]:
    """Return the wheel and the source distribution, built by a clean environment."""
    run_command(interpreter, "-m", "venv", folder / "builder", where=folder)
    python = folder / "builder" / "bin" / "python"
    run_command(python, "-m", "pip", "install", "-q", "hatchling", where=folder)
    (folder / "dist").mkdir()
    run_command(python, "-c", BUILD, folder / "dist", where=ROOT)
    return sorted((folder / "dist").iterdir())


def readme_commands() -> list[list[str]]:
    """Return the commands of the README that need no checkout, each as words."""
    found = []
    for block in re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["surefoot"]:
                found.append([*words[1:], *SHORTER.get(words[1], [])])
    return found


def readme_code() -> str:
    """Return the Python of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))


def try_package(package: Path, interpreter: str, where: Path, models: Path) -> None:
    """Install a package into a clean environment, and use it there."""
    began = time.monotonic()
    run_command(interpreter, "-m", "venv", where / "env", where=where)
    binaries = where / "env" / "bin"
    constraints = ROOT / "constraints.txt"
    install = ("-m", "pip", "install", "-q", "-c", constraints, f"{package}[play,plot]")
    run_command(binaries / "python", *install, where=where)
    print(f"  installed in {time.monotonic() - began:.0f} s", flush=True)
    for path in models.iterdir():
        if path.is_file():
            shutil.copy(path, where)
    for words in [*readme_commands(), *(shlex.split(command) for command in COMMANDS)]:
        run_command(binaries / "surefoot", *words, where=where)
        print(f"  ok: surefoot {shlex.join(words)}", flush=True)
    # Without what it was made from.
    (where / "elsewhere").mkdir()
    (where / "bundle").rename(where / "elsewhere" / "bundle")
    said = run_command(binaries / "surefoot", "verify", "bundle", where=where / "elsewhere")
    if not said.startswith("Verified"):
        sys.exit(f"the bundle was not verified:\n{said}")
    print("  ok: surefoot verify bundle", flush=True)
    for name, code in (("the code of the README", readme_code()), ("a Dict agent deployed", DEPLOY)):
        run_command(binaries / "python", "-c", code, where=where)
        print(f"  ok: {name}", flush=True)
    found = run_command(binaries / "python", "-c", "import surefoot; print(surefoot.__file__)", where=where)
    if str(ROOT) in found:
        sys.exit(f"the installed package was not used, but {found}")


def main() -> None:
    """Build, install, try."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter of the clean environments")
    parser.add_argument("--only", choices=("whl", "gz"), help="try one of the two packages")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = folder / "models"
        models.mkdir()
        for example in ("own_attack", "env_factory"):
            shutil.copy(ROOT / "examples" / f"{example}.py", models)
        run_command(sys.executable, "-c", MODELS, where=models)
        for package in build(given.python, folder):
            size = package.stat().st_size
            print(f"{package.name}: {size:,} bytes", flush=True)
            if package.suffix == ".gz" and size > MOST_BYTES:
                sys.exit(f"the source distribution must have at most {MOST_BYTES:,} bytes")
            if given.only in (None, package.suffix.strip(".")):
                place = folder / package.suffix.strip(".")
                place.mkdir()
                try_package(package, given.python, place, models)


if __name__ == "__main__":
    main()
