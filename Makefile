# make demo: a virtual environment in .venv, everything installed at the versions of constraints.txt, and the demo on
# built-in data. make test: the same set-up if it is needed, then lint, types and tests. Once installed, nothing here
# needs the network again until pyproject.toml or constraints.txt changes.

.PHONY: help setup browser demo docs test test-slow fuzz bench lint format clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

RIGHT_VERSION := import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(RIGHT_VERSION)' 2>/dev/null && echo $$p && break; done)
WORKERS ?= 2
RUN := .venv/bin/python -m
READY := .venv/.ready

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*##/make \1\t/p' Makefile | expand -t 18

setup: $(READY)  ## the virtual environment, installed if it is missing or out of date

demo: $(READY)  ## compare a dozen cells on the built-in data: a leaderboard and a report page
	$(RUN) recurra demo

docs: $(READY)  ## the documentation site, in docs/_build
	$(RUN) sphinx --fail-on-warning --keep-going --quiet docs docs/_build
	@echo "Open docs/_build/index.html"

test: lint browser  ## lint, format check, type check, then every test that is not slow
	OMP_NUM_THREADS=1 $(RUN) pytest -n $(WORKERS) --dist worksteal

test-slow: $(READY) browser  ## the tests marked slow
	OMP_NUM_THREADS=1 $(RUN) pytest -n $(WORKERS) --dist worksteal -m slow

SECONDS ?= 300
fuzz: $(READY)  ## random cells, mutated files and kill points, for SECONDS=300; prints the seeds of what fails
	.venv/bin/python scripts/fuzz.py --seconds $(SECONDS)

bench: $(READY)  ## speed against torch and the other engines
	.venv/bin/python benchmarks/speed.py

lint: $(READY)  ## ruff and pyrefly, changing nothing
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) pyrefly check

format: $(READY)  ## let ruff format and fix what it can
	$(RUN) ruff format
	$(RUN) ruff check --fix

# Tests open the report page in a real browser. Where it cannot be installed, this says so and they are skipped by name.
browser:  ## Chromium for the tests of the report page, installed where it is missing and apt is at hand
	@for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do \
		command -v $$name >/dev/null && exit 0; done; \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		echo "Installing Chromium for the tests of the report page."; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	else \
		echo "No Chromium here, so the tests of the report page are skipped; on Debian: sudo apt-get install chromium" >&2; \
	fi

clean:  ## remove caches and build outputs; .venv stays
	rm -rf build dist runs docs/_build docs/generated .pytest_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -name __pycache__ -type d -print | xargs rm -rf

# pip heeds the constraints for what it installs and, through the two variables (older and newer pip), for what it builds with.
$(READY): pyproject.toml constraints.txt
	@"$(PYTHON)" -c '$(RIGHT_VERSION)' 2>/dev/null || \
		{ echo "recurra needs Python 3.11, 3.12 or 3.13: install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@.venv/bin/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear .venv
	@echo "Installing into .venv; the first time this takes some minutes."
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(RUN) pip install --quiet --editable '.[dev]'
	@touch $@
