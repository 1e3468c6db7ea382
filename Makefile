# Every target sets up what it needs. PYTHON may name another interpreter (3.11 or newer).
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

# Installing the browser that pages are tested in needs root.
ASROOT := $(shell test "$$(id -u)" = 0 || echo sudo)

.PHONY: certify reproduce test test-fast check lint setup browser docs records bench case mutants release-check clean

setup: $(STAMP)

# Rebuilt whenever the pins or the package metadata change.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Surefoot needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

certify: setup
	$(BIN)/surefoot certify cartpole-5 --agent cartpole-5-gru-polished-s0.35 --sigma 0.35 --episodes 10000 --confidence 0.95 --record

# The paper's figures and tables, from the committed numbers, in runs/reproduce.
reproduce: setup
	$(BIN)/python -m study

# A browser for the tests of the page; anywhere but on Debian and its kin install Chromium and chromedriver yourself.
browser:
	@{ command -v chromium && command -v chromedriver; } > /dev/null || ! command -v apt-get > /dev/null || \
	  { $(ASROOT) apt-get update --quiet && \
	    $(ASROOT) apt-get install --quiet --yes --no-install-recommends chromium chromium-driver; }

# One process per file, so that what the tests of a file share is made once; the files that take longest come first.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: setup browser
	$(PYTEST)

# Without the tests that tests/slow.txt names; for every change, before ``make test``.
test-fast: setup
	$(PYTEST) -m "not slow"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint test

# The documentation as a site, in site/.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The leaderboard: verify every entry of records/ and make its page; minutes of rerunning.
records: setup
	$(BIN)/python -m study.records --verify --write

# The cases of docs/cases with few episodes: the simulator is installed, then two and a half minutes of a processor.
case: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[cases]'
	$(BIN)/python -m cases.drone --quick
	$(BIN)/python -m cases.pancreas --quick

bench: setup
	$(BIN)/python bench/play.py

# Errors planted one at a time into a copy: which of them no test notices. About half an hour; see docs/testing.md.
mutants: setup
	$(BIN)/python tests/mutants.py --write bench/results/mutants.json

# Wheel and source distribution, each installed into a clean environment outside of the repository and tried there.
release-check: setup
	$(BIN)/python bench/release_check.py

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache
