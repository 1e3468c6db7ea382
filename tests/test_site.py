"""The documentation as a site: it builds without a warning, loads nothing from elsewhere, fits its screen, is searched
from a disk, and its tutorial runs.
"""

import os
import re
import resource
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

import surefoot
from browsers import FAULTS, opened, started
from surefoot.cli.main import main
from surefoot.compute import processor_kind

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
DRIFT = 25.0  # of 500, of a number in the tutorial, before it has to be measured again
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
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
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # it is pinned below 2
    return subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)


def processor_time():
    """Return the seconds that finished child processes have computed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def small_site(folder, text):
    """Write a site of one page with the settings of ours, and return its configuration."""
    (folder / "docs").mkdir()
    (folder / "docs" / "index.md").write_text(text)
    parts = r"^(hooks|nav|theme|plugins|extra\w*):\n(?:[ -].*\n)*"
    config = re.sub(parts, "", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    (folder / "mkdocs.yml").write_text(f"{config}hooks: [{ROOT / 'docs' / 'site_math.py'}]\nplugins: []\n")
    return folder / "mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    before = processor_time()
    done = build(folder)
    assert processor_time() - before < 90  # seconds; of the processor, whatever else is running
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


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
        if path.suffix == ".css":
            assert not re.search(r"@import|url\((?![\"']?data:)", text), path.name


@NEEDS_MKDOCS
def test_examples_of_the_api_are_code_and_what_others_do_not_need_is_left_out(site):
    page = (site / "api.html").read_text(encoding="utf-8")
    assert "<blockquote>" not in page
    assert page.count("language-pycon") > 30
    assert 'id="surefoot.Certificate.at"' in page
    assert 'id="surefoot.Certificate.is_about"' not in page


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


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("browser")) as running:
        yield running


def shown_pages(site):
    return sorted(path for path in site.rglob("*.html") if path.name != "404.html")


def shown_as(browser, width, dark):
    """Change the width of the screen and the system's theme of a page that is open."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})
    scheme = f"return document.body.dataset.mdColorScheme == '{'slate' if dark else 'default'}'"
    WebDriverWait(browser, 10, poll_frequency=0.02).until(lambda _: browser.execute_script(scheme))


@NEEDS_MKDOCS
def test_every_page_fits_its_screen_is_readable_in_both_themes_and_does_not_complain(site, browser):
    """Opened from a disk, without a network; what only a wide screen shows is the same on all pages."""
    for page in shown_pages(site):
        assert opened(browser, page, width=390) == [], page.name
        for dark in (False, True):
            shown_as(browser, 390, dark)
            assert browser.execute_script(FAULTS, True) == [], (page.name, dark)
    for name in ("index.html", "api.html", "guides/train.html"):
        opened(browser, site / name, width=1280)
        for dark in (False, True):
            shown_as(browser, 1280, dark)
            assert browser.execute_script(FAULTS, True) == [], (name, dark)


@NEEDS_MKDOCS
def test_faults_of_a_page_are_noticed(tmp_path, browser):
    """The check above can fail: a wide box, a hidden overflow, a picture without words, gray on gray."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<article><p style='width:2000px'>wide</p><p style='overflow:hidden;white-space:nowrap;width:50px'>cut cut cut"
        " cut</p><img src='gone.png'><p style='color:#999;background:#bbb'>gray</p></article>"
    )
    opened(browser, page, width=390)
    found = " ".join(browser.execute_script(FAULTS, True))
    for fault in ("wider than the screen", "beyond the edge", "cut:", "no alternative text", "not shown", "contrast"):
        assert fault in found


def searched(browser, words):
    """Type into the search box of the page and return the links that it shows."""
    box = browser.find_element(By.CSS_SELECTOR, ".md-search__input")
    # All at once: half a word typed is a query too, and perhaps one that the index complains of.
    box.click()
    browser.execute_cdp_cmd("Input.insertText", {"text": words})
    box.send_keys(Keys.END)
    WebDriverWait(browser, 20).until(lambda _: browser.find_elements(By.CSS_SELECTOR, ".md-search-result__link"))
    return browser.find_elements(By.CSS_SELECTOR, ".md-search-result__link")


@NEEDS_MKDOCS
def test_the_search_works_from_a_disk(site, browser):
    words, page = "frame stack begins", "deviations.html"
    opened(browser, site / "theory.html", width=1280)
    links = searched(browser, words)
    found = [link.get_attribute("href") for link in links]
    assert any(page in link for link in found), found
    assert browser.get_log("browser") == []
    browser.get(next(link for link in found if page in link))
    assert words.split(maxsplit=1)[0].lower() in browser.find_element(By.TAG_NAME, "article").text.lower()


@NEEDS_MKDOCS
def test_the_leaderboard_sorts_by_a_click_on_a_heading(site, browser):
    opened(browser, site / "records.html", width=1280)
    table = browser.find_element(By.CSS_SELECTOR, ".sortable table")
    head = next(cell for cell in table.find_elements(By.CSS_SELECTOR, "th") if cell.text.startswith("gap"))
    place = table.find_elements(By.CSS_SELECTOR, "th").index(head)
    for direction in ("descending", "ascending"):
        browser.execute_script("arguments[0].querySelector('button').click()", head)
        assert head.get_attribute("aria-sort") == direction
        cells = table.find_elements(By.CSS_SELECTOR, f"tbody td:nth-child({place + 1})")
        values = [float(cell.get_attribute("textContent")) for cell in cells]
        assert values == sorted(values, reverse=direction == "descending")
        assert len(set(values)) > 3


@NEEDS_MKDOCS
def test_a_link_to_nowhere_stops_the_build(tmp_path):
    done = build(tmp_path / "site", small_site(tmp_path, "# Home\n\n[gone](gone.md)\n"))
    assert done.returncode != 0
    assert "gone.md" in done.stderr


@NEEDS_SB3
def test_the_tutorial_runs_as_printed(tmp_path, monkeypatch, capsys):
    """Every block in its order, with the sizes it prints; first the agent, for readers who bring none."""
    monkeypatch.chdir(tmp_path)
    *steps, own = re.findall(r"^```(python|sh)\n(.*?)^```", TUTORIAL, flags=re.DOTALL | re.MULTILINE)
    called = []
    for language, code in (own, *steps):
        if language == "python":
            exec(compile(code, "tutorial.md", "exec"), {})
        else:
            called += [shlex.split(line)[1:] for line in code.replace("\\\n", " ").splitlines()]
            for command in called[-code.count("surefoot ") :]:
                assert main(command) == 0, capsys.readouterr().err
    names = ["certify", "train", "certify", "attack", "report", "compare", "certify", "verify"]
    assert [command[0] for command in called] == names
    own, best = (surefoot.Certificate.load(Path("runs", name)) for name in ("model", "best"))
    assert own.n_episodes == best.n_episodes == 1_000
    assert own.at(0.2).lower + 50 < best.at(0.2).lower  # what the page is about, whatever course training takes
    found = [own.estimate, own.at(0.2).lower, own.at(0.4).lower, best.estimate, best.at(0.2).lower, best.at(0.4).lower]
    pattern = r"a mean return of (\d+)\b.*?(\d+) (?:is certified )?at budget\s0\.2(?: and|,) (\d+) at 0\.4"
    printed = [float(number) for row in re.findall(pattern, TUTORIAL, flags=re.DOTALL) for number in row]
    assert len(printed) == len(found)
    # Training repeats its bits on one kind of processor; the page says which, and how far others are.
    if "AMD EPYC family 26 model 2," in processor_kind("cpu"):
        assert printed == pytest.approx(found, abs=DRIFT), found
    assert {"model", "trained"} <= set(re.findall(r"\w+", Path("compare.html").read_text(encoding="utf-8")))
    assert 1 <= float(capsys.readouterr().out.splitlines()[-1]) <= 500
