"""What the documentation says is there, runs, and was measured on the weights that are shipped."""

import ast
import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

import surefoot
from scripts import load_script
from study.paper import TARGETS
from surefoot.cli.main import build_parser
from surefoot.errors import InputError

ROOT = Path(__file__).resolve().parents[1]
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "zoo/README.md", "study/README.md")
PAGES = sorted([*(ROOT / name for name in TOP), *(ROOT / "docs").rglob("*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")
NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="loads what plays")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def prose(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text):
    titles = re.findall(r"^#+ (.+)$", prose(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page, text):
    """Return the relative links of a page that lead nowhere, to no file or to no heading."""
    pattern = r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$|\bsrc(?:set)?=\"([^\"]+)\""
    links = ["".join(found) for found in re.findall(pattern, prose(text), flags=re.MULTILINE)]
    bad = []
    for link in (link for link in links if "://" not in link):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            bad.append(link)
    return bad


def test_every_public_name_is_on_the_page_of_the_api():
    named = re.findall(
        r"^::: surefoot\.(\w+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert sorted(named) == sorted(surefoot.__all__)


@NEEDS_TORCH
def test_every_command_has_its_section_with_its_options():
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    section_of = re.compile(r"^## `(?:surefoot|python -m) ([\w-]+)`\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
    sections = dict(section_of.findall(text))
    reference = load_script("docs/site_reference.py")
    commands = reference.every_command()
    assert sorted(sections) == sorted(commands)
    for name, section in sections.items():
        assert reference.MARK.findall(section) == [name]


@pytest.mark.skipif(find_spec("stable_baselines3") is None, reason="certifies an SB3 agent")
def test_the_python_of_the_readme_certifies_ones_own_zip(tmp_path, monkeypatch, capsys):
    from stable_baselines3 import PPO

    (code,) = blocks(README, "python")
    monkeypatch.chdir(tmp_path)
    PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, seed=0, device="cpu").save("model.zip")
    names = {}
    exec(compile(code.replace("10_000", "40"), "README.md", "exec"), names)
    assert names["certificate"].lower[0] <= names["certificate"].estimate
    assert int(names["action"]) in {0, 1}
    assert f"{names['certificate'].at(0.15).lower}" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


def test_a_broken_link_is_noticed():
    text = "[a](nowhere.md) [b](CHANGELOG.md#no-such-heading) [c](CHANGELOG.md#changes)\n\n[d]: gone.png\n"
    text += '<img src="e.gif">'
    broken = ["nowhere.md", "CHANGELOG.md#no-such-heading", "gone.png", "e.gif"]
    assert broken_links(ROOT / "README.md", text) == broken


def shown_commands(text):
    """Return the words of every surefoot command in the shell code of a page."""
    lines = [line for code in blocks(text, "sh") for line in code.replace("\\\n", " ").splitlines()]
    whole = [line.split("#")[0].split(">")[0] for line in lines]
    return [shlex.split(line)[1:] for line in whole if line.startswith("surefoot ")]


def test_the_commands_of_the_documentation_parse():
    shown = {page: shown_commands(page.read_text(encoding="utf-8")) for page in PAGES}
    for words in (words for commands in shown.values() for words in commands):
        build_parser().parse_args(words)
    # As many as there are: if none is found, none is wrong.
    assert sum(len(commands) for commands in shown.values()) >= 60
    assert sum(bool(commands) for commands in shown.values()) >= 10
    used = {words[0] for commands in shown.values() for words in commands}
    assert used >= {"certify", "verify", "plan", "tune", "attack", "compare", "merge", "report", "train"}


def test_planted_a_command_that_does_not_parse_is_found():
    page = "```sh\nsurefoot certify cartpole-5 \\\n  --no-such-option 3  # as it was\n```\n"
    (words,) = shown_commands(page)
    assert words == ["certify", "cartpole-5", "--no-such-option", "3"]
    with pytest.raises(InputError, match="unknown option --no-such-option"):
        build_parser().parse_args(words)


@NEEDS_TORCH
def test_the_numbers_were_measured_on_the_shipped_weights():
    """Red after retraining until study/agents_table.py --write has been run, as CONTRIBUTING.md says."""
    from study import mujoco
    from study.agents_table import HEADLINE
    from study.numbers import shipped_agents
    from surefoot.agents.files import load_card

    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `([\w.-]+)` \| `(\w{8})` \|", results, flags=re.MULTILINE))
    smoothed = {agent.name: agent.sha256 for agent in shipped_agents() if agent.sigma > 0}
    smoothed |= {card["name"]: card["sha256"] for card in mujoco.agents()}
    assert shown == {name: sha256[:8] for name, sha256 in smoothed.items()}
    assert drawn()["agent_sha256"] == load_card(HEADLINE)["sha256"]


def drawn():
    """Return the certificate that the README's figure shows."""
    return json.loads((ROOT / "docs" / "figures" / "idea-curve.json").read_text(encoding="utf-8"))


def certified_rows(text):
    """Return budget, lower and upper bound of every line of a printed certificate."""
    return re.findall(r"^ *([\d.]+) +([\d.]+) +([\d.]+)(?:  \*)?$", text, flags=re.MULTILINE)


def test_figure_and_printed_output_of_the_readme_show_one_certificate():
    figure = drawn()
    rows = certified_rows(blocks(README, "text")[0])
    budgets, bounds_below, bounds_above = (figure[key][::2] for key in ("budgets", "lower", "upper"))
    assert [float(budget) for budget, _, _ in rows] == budgets
    assert budgets[-1] == figure["budgets"][-1]
    for (_, lower, upper), proved, above in zip(rows, bounds_below, bounds_above, strict=True):
        assert proved - 0.01 <= float(lower) <= proved
        assert above <= float(upper) <= above + 0.01
    assert figure["curve"]["lower"][15] == pytest.approx(figure["lower"][3])
    assert f"--agent {figure['agent']} --sigma {figure['sigma']:g} " in (ROOT / "Makefile").read_text(encoding="utf-8")


@NEEDS_TORCH
def test_picture_and_results_of_the_readme_say_what_their_data_say():
    """Red after a retraining until the commands of CONTRIBUTING.md have been run."""
    from study.records import NUMBERS
    from study.records_page import results
    from surefoot.agents.files import load_card

    episode = load_script("docs/figures/episode.py")
    tape = json.loads(episode.TAPE.read_text(encoding="utf-8"))
    for role, agent in episode.AGENTS.items():
        assert tape["agents"][role]["agent_sha256"] == load_card(agent)["sha256"]
    assert within(README, "episode") == episode.caption(tape)
    assert within(README, "results") == results(json.loads(NUMBERS.read_text(encoding="utf-8")))


@NEEDS_TORCH
@pytest.mark.parametrize("name", ["first_certificate", "pancreas"])
def test_the_outputs_of_a_notebook_are_those_of_its_code(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    notebook = load_script("docs/site_notebook.py")
    cells = notebook.read(name)
    assert notebook.run(cells) == [notebook.said(cell) for cell in cells]
    assert sum(bool(notebook.said(cell)) for cell in cells) >= 5
    assert "at least" in notebook.page(cells)


def within(text, block):
    """Return what is between the marks of a block."""
    return re.search(rf"<!-- begin: {block} -->\n\n(.*?)\n\n<!-- end: {block} -->", text, flags=re.DOTALL)[1]


def test_the_citation_names_this_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert text.startswith("cff-version: 1.2.0\n")
    assert f"\nversion: {surefoot.__version__}\n" in text
    assert f"## {surefoot.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def missing_modules(text):
    """Return the modules and folders with a slash in their name that a page names and that are not there."""
    named = {span for span in re.findall(r"`([\w/-]+/[\w/-]*)`", text) if not span.startswith("runs/NAME")}
    places = (ROOT, ROOT / "src" / "surefoot")
    there = {span for span in named for place in places if (place / span).exists() or (place / f"{span}.py").exists()}
    return sorted(named - there)


def test_the_modules_of_the_design_exist():
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    assert missing_modules(text) == []
    assert missing_modules("`play/channel`, `play/no_such_module`, `proof/`") == ["play/no_such_module"]


@NEEDS_TORCH
def test_every_array_and_field_of_a_run_is_in_the_file_formats(tmp_path):
    """What a small attack writes is on the page, key by key."""
    from surefoot.cli.main import main
    from surefoot.episodes import ARRAYS

    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    asked = ["--budgets", "0.1", "--method", "random", "--episodes", "2", "--quiet", "--out", str(tmp_path / "run")]
    assert main(["attack", "cartpole-1", *asked]) == 0
    attack, run = (json.loads((tmp_path / "run" / name).read_text()) for name in ("attack.json", "run.json"))
    assert [key for key in {*attack, *run, *ARRAYS} if f"`{key}`" not in text] == []


def test_every_field_of_a_certificate_is_documented():
    text = (ROOT / "docs" / "certificates.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+`) \|", text[text.index("## The file") :], flags=re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    episodes = surefoot.Episodes.from_returns([0.0, 1.0, 1.0], sigma=0.1, floor=0, ceiling=1)
    written = set(surefoot.certify(episodes, [0.1], method="band").to_json())
    optional = {"action_sigma", "channel", "mixed"}
    optional |= {"sigma_per_feature", "probabilities", "quantiles", "cvars", "gamma", "norm", "max_steps", "stochastic"}
    assert written <= documented
    assert documented - written <= optional


PAPER = json.loads((ROOT / "docs" / "paper.json").read_text(encoding="utf-8"))
ITEMS = [item for section in PAPER["sections"] for item in section["items"]]
DIFFERENCES = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")


def defined(path):
    """Return the names that a module defines: functions, classes, their methods, and constants."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def is_there(where):
    """Return whether a place of the map exists: a command that parses, a heading of a page, a name of a module."""
    if where.startswith("surefoot "):
        build_parser().parse_args(where.split()[1:])
        return True
    if where.startswith("python -m study "):
        return where.split()[3] in {target.name for target in TARGETS}
    path, _, anchor = where.partition("#")
    if path.endswith(".md"):
        text = (ROOT / path).read_text(encoding="utf-8")
        return not anchor or anchor in anchors(text)
    path, _, name = where.partition(":")
    own = path.startswith(("study/", "examples/", "tests/"))
    file = ROOT / path if own else ROOT / "src" / "surefoot" / path
    return file.is_file() and (not name or name in defined(file))


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["item"][:40])
def test_every_place_of_the_map_of_the_paper_exists(item):
    assert [where for where in item["where"] if not is_there(where)] == []
    assert item["where"]
    assert item["paper"]


def test_a_place_that_is_gone_is_noticed():
    gone = ("play/channel.py:NoSuchName", "play/no_such_module.py", "docs/theory.md#no-such-heading")
    assert [is_there(where) for where in gone] == [False] * 3
    assert not is_there("python -m study no-such-figure")
    with pytest.raises(surefoot.InputError):
        is_there("surefoot certify --no-such-option")


def headings(text):
    """Return the anchors of the differences, one per heading of the third level."""
    return anchors("\n".join(line for line in text.splitlines() if line.startswith("### ")))


def test_the_map_of_the_paper_and_the_differences_agree():
    linked = {anchor for item in ITEMS for anchor in item.get("deviations", ())}
    assert linked == headings(DIFFERENCES)
    for item in ITEMS:
        assert item["verdict"] in {"equal", "deviation", "not done"}
        assert (item["verdict"] == "equal") == (not item.get("deviations")), item["item"]


def test_every_figure_and_table_of_the_paper_is_on_its_map():
    named = {
        word for item in ITEMS for word in re.findall(r"(?:Figure|Table|Algorithm|Lemma|Theorem) \d+", item["item"])
    }
    figures = {f"Figure {number}" for number in range(1, 14)} | {f"Table {number}" for number in range(1, 8)}
    assert figures | {"Algorithm 1", "Algorithm 2", "Lemma 1", "Lemma 2", "Lemma 3", "Theorem 1"} <= named


def test_the_page_of_the_map_is_made_of_its_data():
    paper_map = load_script("docs/paper_map.py")
    assert (ROOT / "docs" / "paper.md").read_text(encoding="utf-8") == paper_map.page(PAPER)


def test_the_functions_of_the_theory_exist():
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    table = text[text.index("## Theorems and functions") :]
    rows = re.findall(r"^\| [^|`]+ \| (`[^|]+`) \| `([^`|]+)` \|$", table, flags=re.MULTILINE)
    assert len(rows) >= 18
    for names, path in rows:
        assert set(re.findall(r"`(\w+)`", names)) <= defined(ROOT / "src" / "surefoot" / path), path
