"""Attacks on actions: what the table of measured cases says, and that nothing in it contradicts a certificate."""

from bench.actuators import PAGE, RESULTS, table
from surefoot.files import read_json


def test_of_several_attacks_the_lowest_mean_of_each_budget_is_shown():
    attacks = {"random": [[-10.0, 1.0], [-30.0, 1.0]], "uniform": [[-12.0, 2.0], [-20.0, 1.0]]}
    losses = {"random": [[0.5, 0.1], [20.5, 0.3]], "uniform": [[2.5, 0.2], [10.5, 0.4]]}
    found = {
        "sigma": 0.5,
        "budgets": [0.1, 0.2],
        "mean": -9.0,
        "error": 0.5,
        "lower": [-20.01, -50.0],
    }
    rows = table({"cases": {"Pendulum-v1": {**found, "attacks": attacks, "losses": losses}}}).splitlines()[2:]
    # Certified values are rounded down.
    assert rows[0] == "| Pendulum-v1 | 0.5 | -9.0 ± 0.5 | 0.1 | -20.1 | -12.0 ± 2.0 | 2.5 ± 0.2 | `uniform` |"
    assert rows[1] == "| Pendulum-v1 | 0.5 | -9.0 ± 0.5 | 0.2 | -50.0 | -30.0 ± 1.0 | 20.5 ± 0.3 | `random` |"


def test_the_page_shows_what_was_measured_and_no_attack_contradicts_a_certificate():
    results = read_json(RESULTS)
    assert table(results) in PAGE.read_text(encoding="utf-8")
    for found in results["cases"].values():
        assert len(found["budgets"]) >= 3
        assert found["contradictions"] == 0
