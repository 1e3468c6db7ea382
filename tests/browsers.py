"""A real browser without a network, for the tests of the report and of the site."""

import shutil
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

# What is wrong with a page as it is shown now: one line per fault.
FAULTS = Path(__file__).with_name("site_faults.js").read_text(encoding="utf-8")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1200,900",
)


@contextmanager
def started(folder):
    """Start Chromium with its driver; ``folder`` is for the browser's own files."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    assert binary, (
        "no Chromium found; install it (Debian: apt-get install chromium chromium-driver), or run 'make test'"
    )
    assert driver, "no chromedriver found; install it (Debian: apt-get install chromium-driver), or run 'make test'"
    options = Options()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    try:
        yield browser
    finally:
        browser.quit()


def opened(browser, path, *, dark=False, width=1200, calm=False):
    """Open a page afresh and return what the console said."""
    browser.get_log("browser")
    features = [
        {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
        {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(path.as_uri())
    browser.execute_script("try { localStorage.clear() } catch {}")
    return browser.get_log("browser")
