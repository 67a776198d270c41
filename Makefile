# Two commands are all that a fresh clone needs: `make serve` and `make test`. Each sets up what it needs, once.
# Python 3.11 or newer, pip and make are all that must be there. PYTHON=... picks another Python, ARGS=... goes to the command.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help serve test check bench bench-peers model clean

VENV := .venv
BIN := $(VENV)/bin
NEW_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell $(name) -c '$(NEW_ENOUGH)' 2>/dev/null && echo $(name))))

help: ## what there is
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target says; do printf '%-18s%s\n' "$$target" "$$says"; done

serve: $(VENV)/requirements.stamp model ## set up and run everything on 127.0.0.1:8000
	@exec $(BIN)/python manage.py serve $(ARGS)

test: $(VENV)/requirements-dev.stamp model ## set up and run all tests
	@echo "Running all tests"
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/requirements-dev.stamp ## lint, types, and who may import whom
	@echo "Checking style (ruff), types (mypy) and imports (import-linter)"
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/requirements-dev.stamp model ## the benchmarks that need nothing but this project; prints ratios
	@for benchmark in overhead "overhead --stores postgres" engine fairness pipeline sessions structured; do
	    echo "Running the benchmark $$benchmark"
	    PYTHONPATH=benchmarks $(BIN)/python -m benchmarks.$$benchmark
	done

bench-peers: $(VENV)/requirements-dev.stamp ## set up the engines that the benchmarks compare with, below .peers/
	@PYTHONPATH=benchmarks $(BIN)/python -m peers.set_up

model: $(VENV)/requirements.stamp ## get the default model
	@$(BIN)/python manage.py pull_model

clean: ## remove the virtual environment; models and the database stay
	@rm -rf $(VENV) .venv.lock

# requirements.stamp and requirements-dev.stamp: .venv holds what the file of that name asks for. Two makes at once take turns.
$(VENV)/%.stamp: %.txt requirements.txt
	@exec 9>.venv.lock
	if command -v flock >/dev/null; then flock 9; fi
	if [ $@ -nt $< ] && [ $@ -nt requirements.txt ]; then exit 0; fi
	if ! $(or $(PYTHON),false) -c '$(NEW_ENOUGH)' 2>/dev/null; then
	    echo "Tokenry needs Python 3.11 or newer with its venv module (Debian and Ubuntu: apt install python3.11-venv)." >&2
	    echo "If it has a name of its own, give it: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2
	    exit 1
	fi
	echo "Installing $< into $(VENV) (the first time: a minute or more, and 2.5 GB)"
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -r $< | while read -r line; do
	    case $$line in
	        Downloading*) echo "  $$line" ;;
	        "Installing collected"*) echo "  Installing what was downloaded" ;;
	    esac
	done || {
	    echo "pip could not install $<; its lines above say why. Usual reasons: no network, or less than 5 GB of free disk." >&2
	    echo "Then run this again: it goes on from what is there." >&2
	    exit 1
	}
	touch $(VENV)/requirements.stamp $@
