"""The documentation as a site: it builds without a warning, loads nothing from elsewhere, fits its screen, is searched
from a disk, and its tutorial runs.
"""

import importlib.util
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from browsers import opened, started
from surefoot.cli.main import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
# What the tutorial does in minutes the test does in seconds.
SMALL = (
    ('"n_steps": 256, "batch_size": 256, "n_epochs": 10', '"n_steps": 8, "batch_size": 64, "n_epochs": 1'),
    ("80_000", "64"),
    ("10000", "40"),
    ("--episodes 100", "--episodes 2"),
    ("--noise-samples 16", "--noise-samples 2"),
    ("0.2,0.5,1", "0.05"),
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


def small_site(folder, text):
    """Write a site of one page with the settings of ours, and return its configuration."""
    (folder / "docs").mkdir()
    (folder / "docs" / "index.md").write_text(text)
    config = re.sub(r"^(hooks|nav|theme):\n(?:[ -].*\n)*", "", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    (folder / "mkdocs.yml").write_text(f"{config}hooks: [{ROOT / 'docs' / 'site_math.py'}]\n")
    return folder / "mkdocs.yml"


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
    pages = {path.stem for path in (ROOT / "docs").rglob("*.md")}
    assert pages | {"index", "zoo", "study-data", "contributing", "changes", "examples"} <= {
        p.stem for p in site.rglob("*.html")
    }
    assert not list(site.rglob("*.py"))


@NEEDS_MKDOCS
def test_links_lead_somewhere_on_the_site(site):
    for page in site.rglob("*.html"):
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
    for path in (*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.js")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link[^>]+href="(?:https?:)?//', text), (
            path.name
        )
        assert not re.search(r"@import|url\(", text), path.name


@NEEDS_MKDOCS
def test_formulas_are_drawn_by_the_browser_itself(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "arithmatex" not in text, page.name
        assert text.count("<math") == text.count("</math>")
    assert (site / "theory.html").read_text(encoding="utf-8").count("<math") > 300


@NEEDS_MKDOCS
def test_a_formula_that_cannot_be_translated_stops_the_build(tmp_path):
    docs = small_site(tmp_path, "# Home\n\n$\\nosuchcommand{x}$\n")
    done = build(tmp_path / "site", docs)
    assert done.returncode != 0
    assert "cannot translate the formula" in done.stderr


@NEEDS_MKDOCS
def test_formulas_break_before_relations_outside_of_brackets():
    spec = importlib.util.spec_from_file_location("site_math", ROOT / "docs" / "site_math.py")
    site_math = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site_math)
    long = r"g_c(p) = \Phi(\Phi^{-1}(p) - c) \le 1 + \varepsilon"
    assert site_math.pieces(long) == ["g_c(p) ", r"= \Phi(\Phi^{-1}(p) - c) ", r"\le 1 + \varepsilon"]
    for whole in (
        r"c = B / \sigma",
        r"\Phi(X \ge x + x + x + x + x + x + x + x)",
        r"\{ z : z \le t + t + t + t + t + t + t + t \}",
    ):
        assert site_math.pieces(whole) == [whole]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("browser")) as running:
        yield running


def shown_pages(site):
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


@NEEDS_MKDOCS
@pytest.mark.parametrize("width", [390, 1280, 1920])
@pytest.mark.parametrize("dark", [False, True])
def test_no_page_is_wider_than_the_screen_and_none_complains(site, browser, width, dark):
    """Opened from a disk, without a network."""
    for page in shown_pages(site):
        assert opened(browser, page, width=width, dark=dark) == [], page.name
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, page.name


@NEEDS_MKDOCS
def test_the_code_of_a_page_is_whole_on_a_common_screen_or_scrolls(site, browser):
    opened(browser, site / "index.html", width=1280)
    cut = "return [...document.querySelectorAll('pre')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    assert browser.execute_script(cut) == 0
    opened(browser, site / "index.html", width=390)
    hidden = (
        "return [...document.querySelectorAll('pre, table')].filter((e) => getComputedStyle(e).overflowX != 'auto')"
    )
    assert browser.execute_script(hidden) == []


@NEEDS_MKDOCS
def test_the_search_box_finds_a_word_and_leads_to_its_section(site, browser):
    opened(browser, site / "index.html")
    box = browser.find_element(By.ID, "search")
    box.send_keys("frame stack begins")
    WebDriverWait(browser, 10).until(lambda _: browser.find_elements(By.CSS_SELECTOR, "#hits a"))
    assert "How the frame stack begins" in browser.find_element(By.CSS_SELECTOR, "#hits a").text
    box.send_keys(Keys.ENTER)
    WebDriverWait(browser, 10).until(
        lambda _: browser.current_url.endswith("deviations.html#how-the-frame-stack-begins")
    )
    assert browser.get_log("browser") == []


@NEEDS_MKDOCS
def test_the_search_box_says_when_there_is_nothing(site, browser):
    opened(browser, site / "theory.html")
    browser.find_element(By.ID, "search").send_keys("nosuchwordanywhere")
    WebDriverWait(browser, 10).until(lambda _: browser.find_element(By.ID, "hits").text == "No matches.")


@NEEDS_MKDOCS
def test_figures_lie_on_a_plate_in_the_dark(site, browser):
    opened(browser, site / "study.html", dark=True)
    plate = "return getComputedStyle(document.querySelector('.figure')).backgroundColor"
    page = "return getComputedStyle(document.body).backgroundColor"
    assert browser.execute_script(plate) == "rgb(255, 255, 255)" != browser.execute_script(page)


@NEEDS_MKDOCS
def test_a_link_to_nowhere_stops_the_build(tmp_path):
    done = build(tmp_path / "site", small_site(tmp_path, "# Home\n\n[gone](gone.md)\n"))
    assert done.returncode != 0
    assert "gone.md" in done.stderr


@NEEDS_SB3
def test_the_tutorial_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    train, deploy = blocks("python")
    exec(compile(train, "train.py", "exec"), {})
    whole = [code.replace("\\\n", " ") for code in blocks("sh")]
    commands = [line.split()[1:] for code in whole for line in code.splitlines()]
    assert [command[0] for command in commands] == ["certify", "attack", "attack", "report"]
    for command in commands:
        assert main(command) == 0, capsys.readouterr().err
    assert "noisy" in Path("compare.html").read_text(encoding="utf-8")
    capsys.readouterr()
    exec(compile(deploy, "deploy.py", "exec"), {})
    assert 1 <= float(capsys.readouterr().out) <= 200
