"""The guide to floor and ceiling shows the table that the software uses."""

from study import floors
from study.agents_table import ROOT
from surefoot.play.floors import DOCS


def test_the_guide_shows_the_table_in_use(monkeypatch):
    page = (ROOT / "docs" / DOCS).read_text(encoding="utf-8")
    assert floors.table() in page
    monkeypatch.setitem(floors.KNOWN, "Pendulum-v1", floors.KNOWN["CartPole-v1"])
    assert floors.table() not in page
