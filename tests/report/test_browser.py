"""The page in a real browser: it loads, answers to mouse and keyboard, and shows the numbers of the file.

Needs Chromium with its driver, which ``make test`` installs on Debian; without them these tests fail.
"""

import re
from itertools import pairwise

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import surefoot
from browsers import FAULTS, opened, started
from pages import HOSTILE, attacked, certified, replayed
from surefoot.episodes import Episodes
from surefoot.errors import printable
from surefoot.proof.rounding import format_lower, format_upper
from surefoot.report.evidence import write_evidence
from surefoot.report.page import write_report
from surefoot.runs.finish import write_run_report
from surefoot.runs.read import read_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Start one browser without network for all tests of this file."""
    with started(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two certificates, one of them of pictures, and an attack on the first; each with its page."""
    root = tmp_path_factory.mktemp("runs")
    certified(root / "a")
    replayed(root / "a", steps=40)
    attacked(root / "b")
    certified(root / "c", agent="agent-c", sigma=0.4)
    replayed(root / "c", shape=(84, 84), environment="Pong")
    write_run_report(root / "a")
    write_run_report(root / "b")
    write_report([read_run(root / name) for name in "abc"], root / "compare.html")
    verdict = {
        "bounds_recomputed": True,
        "checks": [{"name": "hash of the episode data", "result": "skipped", "detail": "e" * 64}],
        "not_checked": ["the theorem itself"],
    }
    write_evidence(read_run(root / "a"), verdict, root / "a", command="surefoot verify a")
    one, other = (surefoot.Episodes.load(root / name / "episodes.npz") for name in "ac")
    surefoot.compare(one, other, budgets=(0.1,), out=root / "difference")
    return root


def one(browser, selector):
    (found,) = browser.find_elements(By.CSS_SELECTOR, selector)
    return found


def ready(browser):
    return browser.execute_script("return document.documentElement.dataset.ready") == "yes"


def shown(browser, role):
    """Return what the readout says of the first line of a role, or None when it is not shown."""
    found = browser.find_elements(By.CSS_SELECTOR, f"[data-readout] li[data-role={role}] b")
    return found[0].text if found else None


def pick(browser, index):
    """Move the slider to a budget, as a hand would, and return the budget's text."""
    browser.execute_script(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))",
        one(browser, "[data-slider]"),
        index,
    )
    return one(browser, "[data-budget]").text


def budgets(browser):
    return browser.execute_script("return JSON.parse(document.getElementById('data').textContent).charts[0].budgets")


@pytest.mark.parametrize("name", ["a/report.html", "b/report.html", "compare.html"])
@pytest.mark.parametrize("dark", [False, True])
def test_it_loads_offline_readable_and_without_a_word_on_the_console(browser, runs, name, dark):
    """Contrast as WCAG AA asks for it; test_site plants faults that the same check has to find."""
    assert opened(browser, runs / name, dark=dark) == []
    assert ready(browser)
    loaded = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    assert [name for name in browser.execute_script(loaded) if not name.startswith("data:")] == []
    assert browser.execute_script(FAULTS, True) == []


def test_an_error_on_the_console_would_be_noticed(browser, runs, tmp_path):
    broken = tmp_path / "broken.html"
    broken.write_text((runs / "a" / "report.html").read_text().replace('id="theme"', 'id="gone"'))
    said = opened(browser, broken)
    assert any("Cannot" in entry["message"] for entry in said)
    assert not ready(browser)


def test_the_numbers_are_those_of_the_certificate(browser, runs, tmp_path):
    stated = certified(tmp_path / "a")
    opened(browser, write_run_report(tmp_path / "a"))
    grid = budgets(browser)
    for budget, low, high in zip(stated["budgets"], stated["lower"], stated["upper"], strict=True):
        assert float(pick(browser, grid.index(budget))) == budget
        assert shown(browser, "lower") == format_lower(low, 2)
        assert shown(browser, "upper") == format_upper(high, 2)
    rows = browser.execute_script(
        "return [...document.querySelectorAll('details table')[0].querySelectorAll('tbody tr')]"
        ".map(row => [...row.children].map(cell => cell.textContent))"
    )
    limits = zip(stated["lower"], stated["upper"], strict=True)
    assert [[row[1].removesuffix(" *"), row[2]] for row in rows] == [
        [format_lower(low, 2), format_upper(high, 2)] for low, high in limits
    ]
    assert f"at least {format_lower(stated['lower'][3], 2)} (maximum 200)" in one(browser, ".headline").text


def test_hovering_reads_a_budget(browser, runs):
    opened(browser, runs / "a" / "report.html")
    grid = budgets(browser)
    plot = one(browser, "[data-plot] svg")
    read = {}
    for share in (-0.4, 0.0, 0.4):
        ActionChains(browser).move_to_element_with_offset(plot, int(share * plot.size["width"]), 0).perform()
        budget = float(one(browser, "[data-budget]").text)
        assert budget in grid
        read[budget] = float(shown(browser, "lower"))
        assert one(browser, "[data-slider]").get_attribute("aria-valuetext").startswith(f"budget {budget:g}. ")
    assert list(read) == sorted(read)
    assert len(read) == 3
    assert list(read.values()) == sorted(read.values(), reverse=True)


def test_everything_can_be_switched_off_and_on(browser, runs):
    opened(browser, runs / "a" / "report.html")
    roles = {box.get_attribute("data-role") for box in browser.find_elements(By.CSS_SELECTOR, "[data-switches] input")}
    assert roles == {"lower", "upper", "perfect", "estimate", "attack", "baseline"}
    pick(browser, budgets(browser).index(0.4))
    for box in browser.find_elements(By.CSS_SELECTOR, "[data-switches] input"):
        line = f"[data-line={box.get_attribute('data-series')}]"
        for _ in range(2):
            before = box.is_selected()
            assert len(browser.find_elements(By.CSS_SELECTOR, line)) == before
            browser.execute_script("arguments[0].click()", box)
            assert box.is_selected() is not before
            assert len(browser.find_elements(By.CSS_SELECTOR, line)) == (not before)
    box = one(browser, "[data-role=lower][type=checkbox]")
    assert shown(browser, "lower") is not None
    browser.execute_script("arguments[0].click()", box)
    assert shown(browser, "lower") is None
    assert shown(browser, "attack") == "170.00 ± 1.50"


def test_the_keyboard_does_it_all(browser, runs):
    opened(browser, runs / "a" / "report.html")
    keys = ActionChains(browser)
    reached = []
    for _ in range(60):
        keys.send_keys(Keys.TAB).perform()
        active = browser.switch_to.active_element
        reached.append(
            active.get_attribute("id") or active.get_attribute("data-role") or active.text or active.tag_name
        )
        if active.get_attribute("data-play") is not None:
            break
    assert {"theme", "print", "budget-0", "lower", "attack", "Play"} <= set(reached)
    assert reached[0] == "Skip to the result"
    active.send_keys(Keys.SPACE)
    assert active.text == "Pause"
    active.send_keys(Keys.SPACE)
    assert active.text == "Play"
    slider = one(browser, "#budget-0")
    slider.send_keys(Keys.HOME)
    assert one(browser, "[data-budget]").text == "0"
    slider.send_keys(Keys.ARROW_RIGHT)
    assert float(one(browser, "[data-budget]").text) == budgets(browser)[1]
    slider.send_keys(Keys.END)
    assert one(browser, "[data-budget]").text == "1"
    box = one(browser, "[data-role=lower][type=checkbox]")
    box.send_keys(Keys.SPACE)
    assert shown(browser, "lower") is None
    outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_the_theme_follows_the_system_until_it_is_chosen(browser, runs):
    def ground():
        return browser.execute_script("return getComputedStyle(document.body).backgroundColor")

    opened(browser, runs / "a" / "report.html", dark=False)
    light = ground()
    opened(browser, runs / "a" / "report.html", dark=True)
    dark = ground()
    assert light != dark
    button = one(browser, "#theme")
    assert button.text == "Theme: automatic"
    seen = []
    for _ in range(3):
        button.click()
        seen.append((button.text, ground()))
    assert seen == [("Theme: light", light), ("Theme: dark", dark), ("Theme: automatic", dark)]


@pytest.mark.parametrize("page", ["difference/report.html", "a/evidence.html"])
def test_pages_without_a_script_fit_a_phone(browser, runs, page):
    opened(browser, runs / page, width=390)
    wide = "return [document.documentElement, ...document.querySelectorAll('.words')].map(e => e.scrollWidth)"
    assert max(browser.execute_script(wide)) <= 390


def test_the_histogram_and_the_spending_follow_their_controls(browser, runs):
    opened(browser, runs / "a" / "report.html")
    bars = "return [...document.querySelectorAll('#histograms .bar')].map(b => Number(b.getAttribute('height')))"
    plain = browser.execute_script(bars)
    browser.execute_script("arguments[0].click()", one(browser, "[data-stretch]"))
    stretched = browser.execute_script(bars)
    assert len(plain) == len(stretched) == 3
    assert min(stretched) > 3 * min(plain)
    said = one(browser, "#spendings .note").text
    assert "budget 1. On average 70% of the squared budget was used" in said
    select = one(browser, "#spendings select")
    select.send_keys(Keys.ARROW_UP)
    assert "budget 0.4. On average 56% of the squared budget was used" in one(browser, "#spendings .note").text


def test_the_replay_moves_only_when_asked(browser, runs):
    opened(browser, runs / "a" / "report.html")
    panels = browser.find_elements(By.CSS_SELECTOR, "[data-panel]")
    assert [panel.get_attribute("data-panel") for panel in panels] == ["clean", "quiet", "attacked"]
    pole = "return document.querySelector('[data-panel=quiet] .stick').getAttribute('d')"
    before = browser.execute_script(pole)
    browser.execute_script("return new Promise(done => setTimeout(done, 150))")
    assert browser.execute_script(pole) == before
    browser.execute_script("arguments[0].click()", one(browser, "[data-play]"))
    browser.execute_script("return new Promise(done => setTimeout(done, 400))")
    assert browser.execute_script(pole) != before
    slider = one(browser, "#replays input[type=range]")
    slider.send_keys(Keys.END)
    assert one(browser, "[data-play]").text == "Play"
    assert "over after 20 steps" in panels[2].text
    assert "over" not in panels[1].text


def test_the_page_of_a_comparison_replays_both_agents(browser, tmp_path):
    folder = tmp_path / "run"
    a, b = (Episodes.from_returns([5.0, low], sigma=0.2, floor=0, ceiling=9, agent=HOSTILE) for low in (3.0, 4.0))
    surefoot.compare(a, b, out=folder)
    assert opened(browser, folder / "report.html") == []
    assert "No episode is shown here" in one(browser, "#replay").text
    replayed(folder, names=("A", "B"))
    assert opened(browser, write_run_report(folder)) == []
    assert ready(browser)
    panels = browser.find_elements(By.CSS_SELECTOR, "[data-panel]")
    assert [panel.get_attribute("data-panel") for panel in panels] == ["A", "B"]
    one(browser, "#replays input[type=range]").send_keys(Keys.END)
    assert "over after 6 steps" in panels[1].text


def test_pictures_are_drawn(browser, runs):
    opened(browser, runs / "compare.html")
    chooser = one(browser, "#replays > .controls select")
    chooser.send_keys(Keys.ARROW_DOWN)
    browser.execute_script("return new Promise(done => setTimeout(done, 200))")
    spread = browser.execute_script(
        """return [...document.querySelectorAll('#replays canvas')].map(canvas => {
             const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
             return new Set(pixels.filter((_, k) => k % 4 === 0)).size;
           })"""
    )
    assert len(spread) == 3
    assert min(spread) > 100


def test_everything_has_a_name(browser, runs):
    opened(browser, runs / "compare.html")
    unnamed = browser.execute_script(
        """return [...document.querySelectorAll('button, input, select, svg[role=img], canvas')].filter(node =>
             !(node.getAttribute('aria-label') || node.labels?.[0]?.textContent.trim() || node.textContent.trim()))
             .map(node => node.outerHTML.slice(0, 120))"""
    )
    assert unnamed == []
    ids = browser.execute_script("return [...document.querySelectorAll('[id]')].map(node => node.id)")
    assert len(ids) == len(set(ids))
    levels = browser.execute_script(
        "return [...document.querySelectorAll('h1, h2, h3, h4')].map(h => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_print_shows_all_tables_in_black_on_white(browser, runs):
    opened(browser, runs / "a" / "report.html", dark=True)
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script("return [...document.querySelectorAll('details')].every(d => d.open)")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not one(browser, "#theme").is_displayed()
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert not browser.execute_script("return [...document.querySelectorAll('details')].some(d => d.open)")


def test_foreign_names_run_nothing(browser, tmp_path):
    certified(tmp_path / "a", agent=HOSTILE)
    attacked(tmp_path / "b", agent=HOSTILE)
    replayed(tmp_path / "a", environment=HOSTILE)
    said = opened(browser, write_run_report(tmp_path / "a"))
    assert said == []
    assert ready(browser)
    assert browser.execute_script("return window.pwned") is None
    assert browser.execute_script("return document.images.length") == 0
    visible = one(browser, "h1").text
    assert re.sub(r"\s", "", printable(HOSTILE)) in re.sub(r"\s", "", visible)


def test_a_planted_script_would_not_run_either(browser, runs, tmp_path):
    planted = tmp_path / "planted.html"
    text = (runs / "a" / "report.html").read_text()
    planted.write_text(text.replace("</main>", "<script>window.pwned = 1</script></main>"))
    said = opened(browser, planted)
    assert browser.execute_script("return window.pwned") is None
    assert any("Content Security Policy" in entry["message"] for entry in said)
