"""The documentation as a site: it builds without a warning, loads nothing from elsewhere, and its tutorial runs."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from surefoot.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
# What the tutorial does in minutes the test does in seconds.
SMALL = (
    ('"n_steps": 256, "batch_size": 256, "n_epochs": 10', '"n_steps": 8, "batch_size": 64, "n_epochs": 1'),
    ("80_000", "64"),
    ("10000", "40"),
    ("--episodes 100", "--episodes 2"),
    ("--draws 16", "--draws 2"),
    ("0.2,0.5,1", "0.05"),
)
FORMULAS = (
    "the event K &gt;= k* for the least k* with L(k*) &gt; p",
    "If S(x_j) &gt;= r_j for x_1 &lt; x_2",
    "g_c(p) = Phi(Phi^-1(p) - c)",
)
NEEDS_MKDOCS = pytest.mark.skipif(find_spec("mkdocs") is None, reason="builds the site")
NEEDS_SB3 = pytest.mark.skipif(find_spec("stable_baselines3") is None, reason="trains an agent")


def build(folder, config=ROOT / "mkdocs.yml"):
    """Build the site as ``make docs`` does, warnings being errors."""
    call = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(config),
        "--site-dir",
        str(folder),
    ]
    return subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def blocks(language):
    found = re.findall(rf"^```{language}\n(.*?)^```", TUTORIAL, flags=re.DOTALL | re.MULTILINE)
    for large, small in SMALL:
        found = [code.replace(large, small) for code in found]
    return found


@NEEDS_MKDOCS
def test_every_page_of_the_documentation_is_on_the_site(site):
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert pages | {"index", "zoo", "study-data", "contributing", "changes", "examples"} <= {
        p.stem for p in site.glob("*.html")
    }
    assert not list(site.rglob("*.py"))


@NEEDS_MKDOCS
def test_links_lead_somewhere_on_the_site(site):
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            name, _, anchor = link.partition("#")
            if "://" in link or page.name == "404.html":
                continue
            target = page if not name else (page.parent / name)
            assert target.exists(), (page.name, link)
            if anchor:
                assert f'id="{anchor}"' in target.read_text(encoding="utf-8"), (page.name, link)


@NEEDS_MKDOCS
def test_nothing_is_loaded_from_elsewhere(site):
    for path in (*site.glob("*.html"), *site.glob("*.css"), *site.glob("*.js")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link[^>]+href="(?:https?:)?//', text), (
            path.name
        )
        assert not re.search(r"@import|url\(", text), path.name


@NEEDS_MKDOCS
def test_formulas_stay_as_they_were_written(site):
    text = (site / "theory.html").read_text(encoding="utf-8")
    for formula in FORMULAS:
        assert formula in re.sub(r"\s+", " ", text)


@NEEDS_MKDOCS
def test_a_link_to_nowhere_stops_the_build(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Home\n\n[gone](gone.md)\n")
    config = re.sub(r"^(hooks|nav|theme):\n(?:[ -].*\n)*", "", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(config)
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode != 0
    assert "gone.md" in done.stderr


@NEEDS_SB3
def test_the_tutorial_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    train, deploy = blocks("python")
    exec(compile(train, "train.py", "exec"), {})
    commands = [line.split()[1:] for code in blocks("sh") for line in code.splitlines()]
    assert [command[0] for command in commands] == ["certify", "attack", "attack", "report"]
    for command in commands:
        assert main(command) == 0, capsys.readouterr().err
    assert "noisy" in Path("compare.html").read_text(encoding="utf-8")
    capsys.readouterr()
    exec(compile(deploy, "deploy.py", "exec"), {})
    assert 1 <= float(capsys.readouterr().out) <= 200
