"""Runs as tables and as evidence: the numbers of the file, names as text, a statement that can be signed."""

import csv
import hashlib
import io
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from pages import attacked, certified
from surefoot.agents import files as zoo
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import read_json, write_json
from surefoot.proof.query import certify, certify_shared_budget
from surefoot.proof.rounding import format_lower, format_upper
from surefoot.report.evidence import write_evidence
from surefoot.report.exports import as_csv, as_latex, as_markdown
from surefoot.runs.read import read_run

HOSTILE = "=cmd|'/c calc'!A1 \\input{secret} $x$ <script>alert(1)</script> | a_b \u202e#"
AGENT = "cartpole-1-s0.2"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A certificate and an attack on the same agent."""
    monkeypatch.chdir(tmp_path)
    certified(tmp_path / "a")
    attacked(tmp_path / "b")
    return tmp_path


def cells(text, sign):
    return [[cell.strip() for cell in line.strip("| ").split(sign)] for line in text.splitlines() if sign in line]


def test_tables_have_the_rounded_bounds_and_marks(runs):
    stated = read_json(runs / "a" / "certificate.json")
    wanted = [
        [f"{budget:g}", format_lower(low, 2) + (" *" if low < 40.815 else ""), format_upper(high, 2)]
        for budget, low, high in zip(stated["budgets"], stated["lower"], stated["upper"], strict=True)
    ]
    run = [read_run(runs / "a")]
    assert cells(as_markdown(run), " | ")[1:] == wanted


def test_a_star_is_explained_below_its_table(runs):
    """And nothing is said of the baseline where no bound is marked."""
    run = read_run(runs / "a")
    for baseline, marked in ((run.baseline, True), (replace(run.baseline, mean=-1.0), False)):
        text = as_markdown([replace(run, baseline=baseline)])
        assert (" * |" in text) == marked
        assert ("at most the open-loop baseline of" in text) == marked


def test_one_latex_table_has_all_agents_and_budgets(runs):
    stated = read_json(runs / "a" / "certificate.json")
    attack = read_json(runs / "b" / "attack.json")
    tex = as_latex([read_run(runs / "a"), read_run(runs / "b")])
    assert tex.count(r"\begin{table}") == tex.count(r"\label{tab:certified}") == tex.count(r"\end{table}") == 1
    heads, certified_row, attacked_row = [[cell.removesuffix(r" \\") for cell in row] for row in cells(tex, " & ")]
    budgets = sorted({*stated["budgets"], *attack["budgets"]})
    assert heads == ["agent", *(f"$B = {budget:g}$" for budget in budgets)]
    for budget, cell in zip(budgets, certified_row[1:], strict=True):
        expected = "--"
        if budget in stated["budgets"]:
            expected = format_lower(stated["lower"][stated["budgets"].index(budget)], 2)
        assert cell.removesuffix("$^*$") == expected
    assert [cell == "--" for cell in attacked_row[1:]] == [budget not in attack["budgets"] for budget in budgets]
    assert r"95\% confidence" in tex


def test_bounds_stand_below_their_budgets_in_whichever_order_these_were_asked_for(runs):
    """Planted: rows in the order of the budgets next to budgets in the order of the question."""
    episodes = Episodes.from_returns([9.0, 10.0] * 100, sigma=0.1, floor=0, ceiling=10)
    tables = []
    for name, budgets in (("in-order", [0.0, 0.1, 0.3]), ("not", [0.3, 0.0, 0.1])):
        episodes.save(runs / name / "episodes.npz")
        made = certify(episodes, budgets, method="band")
        made.save(runs / name)
        tables.append(as_latex([read_run(runs / name)]).replace(f"{name} &", "run &"))
    assert tables[0] == tables[1]
    assert f"run & {format_lower(made.at(0.0).lower, 2)} & {format_lower(made.at(0.1).lower, 2)} & " in tables[1]
    rows = list(csv.DictReader(io.StringIO(as_csv([read_run(runs / "not")]))))
    assert {float(row["budget"]): float(row["lower"]) for row in rows} == dict(
        zip(made.budgets, made.lower, strict=True)
    )


def test_a_table_says_what_its_budgets_bound(runs):
    """A budget that three episodes share is a weaker attack in each of them than one for every episode."""
    episodes = Episodes.from_returns([0.0, 1.0] * 30, sigma=0.1, floor=0, ceiling=1)
    episodes.save(runs / "s" / "episodes.npz")
    shared = certify_shared_budget(episodes, [0.1], 3)
    shared.save(runs / "s")
    alone, both = as_latex([read_run(runs / "s")]), as_latex([read_run(runs / "s"), read_run(runs / "a")])
    assert f"with budget $B$ ({shared.scope.format(norm='l2')}) (95" in alone
    usual = "total l2 norm of the perturbations of one episode"
    assert f": {shared.scope.format(norm='l2')}; agent-a: {usual}) (95" in both
    assert f"with budget $B$ ({usual}) (95" in as_latex([read_run(runs / "a")])
    (row,) = csv.DictReader(io.StringIO(as_csv([read_run(runs / "s")])))
    assert row["kind"] == "shared"


def test_minus_signs_are_minus_signs(runs):
    certified(runs / "n", returns=[-120.5, -90.25, -101.0] * 40, floor=-200.0, ceiling=0.0)
    tex = as_latex([read_run(runs / "n")])
    row = tex.splitlines()[-4]
    assert "$-$" in row
    assert not re.search(r"& -\d", tex)


def test_names_of_strangers_are_text_in_every_format(runs):
    certified(runs / "h", agent=HOSTILE)
    run = [read_run(runs / "h")]
    markdown, tex, table = as_markdown(run), as_latex(run), as_csv(run)
    assert all("\u202e" not in text for text in (markdown, tex, table))
    assert not re.search(r"(?<!\\)[<>_`#]", markdown.partition("\n")[0].removeprefix("### "))
    assert r"\input{secret}" not in tex
    assert r"\textbackslash{}input\{secret\} \$x\$" in tex
    (row, *_) = csv.DictReader(io.StringIO(table))
    assert row["agent"].startswith("'=cmd")


def test_what_begins_with_blanks_is_no_formula_either(runs):
    """A spreadsheet drops them before it computes a cell."""
    certified(runs / "f", agent="  =1+1")
    (row, *_) = csv.DictReader(io.StringIO(as_csv([read_run(runs / "f")])))
    assert row["agent"] == "'  =1+1"


def test_a_caption_says_which_runs_assume_what_their_users_stated(runs):
    """What is assumed for one alone is said of that one, what is assumed for all once."""
    for name, stated in (("one", ["floor"]), ("two", []), ("three", ["floor"])):
        # As if they had been run here: of returns of others nothing is proved.
        facts = {"agent": name, "block_size": 60, "stated_by_user": stated}
        episodes = Episodes.from_returns([0.0, 1.0] * 30, sigma=0.1, floor=0, ceiling=1, **facts)
        episodes.save(runs / name / "episodes.npz")
        certify(episodes, [0.1], method="band").save(runs / name)
    read = {name: read_run(runs / name) for name in ("one", "two", "three")}
    said = ", assuming that no return is below 0 (stated by the user, not proved)"
    assert f"60 episodes){said}." in as_latex([read["one"], read["three"]])
    assert f"60 episodes); one{said}." in as_latex([read["two"], read["one"]])
    assert f"60 episodes); one{said}; three{said}." in as_latex(list(read.values()))
    assert "assuming" not in as_latex([read["two"]])


@pytest.mark.parametrize(("kind", "name"), [("md", "report.md"), ("latex", "report.tex"), ("csv", "report.csv")])
def test_the_command_writes_each_format(runs, capsys, kind, name):
    assert cli.main(["report", "a", "--format", kind]) == 0
    assert capsys.readouterr().out == f"Report: a/{name}\n"
    assert cli.main(["report", "a", "b", "--format", kind, "--out", "both"]) == 0
    assert len(Path("both").read_text()) > len(Path(f"a/{name}").read_text())


BEGINNINGS = {"png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF-", "svg": b"<?xml"}


@pytest.mark.parametrize("ending", BEGINNINGS)
def test_the_ending_of_the_file_says_what_figure_it_is(runs, capsys, ending):
    certified(runs / "c")
    assert cli.main(["report", "a", "--out", f"one.{ending}"]) == 0
    assert cli.main(["report", "a", "c", "--out", f"two.{ending}"]) == 0
    for name in ("one", "two"):
        assert Path(f"{name}.{ending}").read_bytes().startswith(BEGINNINGS[ending])
    assert cli.main(["report", "b", "--out", f"f.{ending}"]) == 2
    assert "a figure draws certificates, and b is an attack" in capsys.readouterr().err
    other = "pdf" if ending == "png" else "png"
    assert cli.main(["report", "a", "--format", other, "--out", f"f.{ending}"]) == 2
    assert "ends like another format" in capsys.readouterr().err


# --- evidence -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A small certified run of a pretrained agent, with its evidence."""
    folder = tmp_path_factory.mktemp("evidence") / "run"
    options = f"--agent {AGENT} --episodes 20 --workers 1 --budgets 0,0.2,0.4 --method per-threshold --quiet --out"
    assert cli.main(["certify", "cartpole-1", *options.split(), str(folder)]) == 0
    assert cli.main(["report", str(folder), "--evidence"]) == 0
    return folder


def test_the_page_tells_an_auditor_what_is_claimed_checked_and_not(played):
    text = (played / "evidence.html").read_text(encoding="utf-8")
    of_returns = hashlib.sha256((played / "episodes.npz").read_bytes()).hexdigest()
    shown = unescape(re.sub(r"\s+", " ", text))
    for words in (
        "1. The claim", "2. Threat model", "3. Confidence", "4. Environment, agent and files", "6. Limits", of_returns,
        "at most 0.05: all lower bounds hold simultaneously", zoo.load(AGENT).sha256, "none failed",
        "where the returns come from: no block was rerun", f"surefoot verify {played} --agent {AGENT} --blocks all",
    ):  # fmt: skip
        assert words in shown, words
    assert "<script" not in text
    assert "{{" not in text
    assert not re.search(r"url\(|src=", text)


def test_what_is_forged_or_no_certificate_has_no_evidence(runs, capsys):
    stated = read_json(runs / "a" / "certificate.json")
    write_json(runs / "a" / "certificate.json", {**stated, "lower": [value + 1 for value in stated["lower"]]})
    for folder, why in (("a", "could not be recomputed"), ("b", "holds an attack")):
        assert cli.main(["report", folder, "--evidence"]) == 2
        assert why in capsys.readouterr().err
    certified(runs / "c", agent=None)
    assert cli.main(["report", "c", "--evidence"]) == 2
    assert cli.main(["report", "a", "b", "--evidence"]) == 2
    assert not list(runs.rglob("evidence*"))


def test_every_column_of_the_csv_is_the_number_it_is_named_for(runs):
    """All of them differ, so that none stands for another."""
    stated, attack = read_json(runs / "a" / "certificate.json"), read_json(runs / "b" / "attack.json")
    made = list(csv.DictReader(io.StringIO(as_csv([read_run(runs / "a"), read_run(runs / "b")]))))
    proved = [row for row in made if row["kind"] == "certificate"]
    measured = [row for row in made if row["kind"] == "attack"]
    for place, row in enumerate(proved):
        for column, key in (("budget", "budgets"), ("lower", "lower"), ("upper", "upper")):
            assert float(row[column]) == stated[key][place]
        for column, key in (("mean", "estimate"), ("standard_error", "estimate_sem"), ("confidence", "confidence")):
            assert float(row[column]) == stated[key]
        assert (float(row["sigma"]), int(row["n_episodes"]), row["method"]) == (0.2, 400, "per-threshold")
        assert float(row["open_loop_baseline"]) == 40.815
    assert len(proved) == len(stated["budgets"])
    for place, row in enumerate(measured):
        for column, key in (
            ("budget", "budgets"),
            ("mean", "curve"),
            ("standard_error", "curve_sem"),
            ("lambda", "curve_lambda"),
        ):
            assert float(row[column]) == attack[key][place]
        assert (row["lower"], row["upper"], int(row["n_episodes"])) == ("", "", 100)
        assert (row["task"], row["agent"], row["agent_sha256"]) == ("cartpole-5", "agent-a", "hash of agent-a")
    assert len(measured) == 2


def test_a_check_that_was_skipped_is_not_counted_as_passed(runs):
    checks = [{"name": name, "result": name, "detail": "so"} for name in ("passed", "skipped", "impossible")]
    verdict = {"bounds_recomputed": True, "checks": [*checks, checks[0]], "not_checked": []}
    written = write_evidence(read_run(runs / "a"), verdict, runs / "a", command="verify")
    assert "2 checks passed, none failed" in written.read_text(encoding="utf-8")


def test_evidence_that_cannot_be_written_says_which_check_was_not_passed(runs):
    """Also one that was skipped, for want of a package; episodes are rerun for no page."""
    checks = [{"name": name, "result": "skipped", "detail": f"no {name}"} for name in ("floor and ceiling", "replay")]
    verdict = {"bounds_recomputed": False, "checks": checks, "not_checked": []}
    with pytest.raises(InputError, match=r"no evidence is written \(floor and ceiling: no floor and ceiling\)"):
        write_evidence(read_run(runs / "a"), verdict, runs / "a", command="verify")
