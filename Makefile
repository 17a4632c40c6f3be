# One command a line; `make help` lists them. Everything that a command needs, it sets up itself.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
CACHE ?= $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),$(HOME)/.cache)/lastword
JUNIT ?=
TEST_BOUND_S := 300 # of one test: a hanging one fails with every thread's stack
PYTEST := $(BIN)/python -m pytest $(if $(JUNIT),--junitxml=$(JUNIT))

.DEFAULT_GOAL := help
.PHONY: help setup tmux run test live check bench stress chaos format package clean

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml tools/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed (PYTHON=...)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c tools/constraints.txt -e '.[dev]'
	@touch $(STAMP)

setup: $(STAMP) tmux

tmux:
	@tools/ensure-tmux

run: setup ## the main job: one turn in a real pane, one last word (no credentials, no npm)
	@$(BIN)/python examples/one_turn.py

test: setup ## the hermetic suite
	@$(PYTEST) --timeout $(TEST_BOUND_S) -m "not live and not stress"

live: setup ## the promises on the pinned real CLIs (downloads them once; no credentials); FULL=1: all; LATEST=1: newest CLIs
ifdef LATEST
	@$(BIN)/python tools/live_latest.py --cache "$(CACHE)"
else
	@$(BIN)/python tools/live_clis.py --cache "$(CACHE)"
	@LASTWORD_CLI_CACHE="$(CACHE)" $(PYTEST) --timeout $(TEST_BOUND_S) -m "live$(if $(FULL),, and not full)" tests/live
endif

check: setup ## format, lint, types, import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/pyright
	@$(BIN)/lint-imports

bench: setup ## measure; prints tables, asserts nothing, and writes bench-results.json (QUICK=1: minutes less)
	@LASTWORD_CLI_CACHE="$${LASTWORD_CLI_CACHE:-$(CACHE)}" $(BIN)/python bench/all.py $(if $(QUICK),--quick) --json bench-results.json

SESSIONS ?= 1,10,100,1000
TURNS ?= 10
PANES ?= 1,10

stress: setup ## long, into stress-report/: in-process sessions (SESSIONS=1,10,…), real panes with faults (PANES=1,10,…), TURNS=… of each; SOAK=20m or VIRTUAL=8h: only that, flat or not
ifdef SOAK
	@$(BIN)/python bench/stress_soak.py $(SOAK)
else ifdef VIRTUAL
	@$(BIN)/python bench/stress_virtual.py $(VIRTUAL)
else
	@$(BIN)/python bench/stress_memory.py --sessions $(SESSIONS) --turns $(TURNS)
	@timeout 1800 $(BIN)/python bench/stress_panes.py --sessions $(PANES) --turns $(TURNS)
	@$(PYTEST) -m stress tests/stress tests/volume -s
endif

chaos: setup ## long: 500 lives of a host ended by SIGKILL, and an independent checker (at most 20 minutes)
	@$(PYTEST) -m stress tests/crash -s

format: setup
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

package: setup ## wheel and sdist, and a check of what is in them
	@rm -rf build dist
	@$(BIN)/python -m build --quiet
	@$(BIN)/python tools/check_wheel.py dist

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
