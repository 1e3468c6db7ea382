"""``surefoot report``: a page of every run, made anew, of several runs."""

import math
from pathlib import Path

import pytest

from cli_commands import given, strict, surefoot_command

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.usefixtures("copied_run")
def test_every_run_ends_with_a_page_that_names_its_command():
    stated = strict(Path("run/certificate.json").read_text())
    text = Path("run/report.html").read_text(encoding="utf-8")
    assert f"{math.floor(stated['lower'][0] * 100) / 100:.2f}" in text
    assert "<span>surefoot</span> <span>certify</span> <span>cartpole-5</span>" in text
    assert stated["agent_sha256"] in text


@pytest.mark.usefixtures("copied_run")
def test_a_page_is_made_anew_and_compares_runs(capsys):
    surefoot_command(*given("--out", "other"))
    Path("run/report.html").unlink()
    capsys.readouterr()
    surefoot_command("report", "run")
    assert capsys.readouterr().out == "Report: run/report.html\n"
    assert Path("run/report.html").stat().st_size > 10_000
    surefoot_command("report", "run", "other")
    assert capsys.readouterr().out == "Report: report.html\n"
    assert "2 certificates compared" in Path("report.html").read_text(encoding="utf-8")
    # A run that is named twice is one run.
    surefoot_command("report", "run", "run")
    assert capsys.readouterr().out == "Report: run/report.html\n"
    surefoot_command("report", "run", "--out", "deep/page.html")
    assert Path("deep/page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
