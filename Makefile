# Two commands are all a newcomer needs: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
# One process per core with one thread each: twice as fast as one process with all threads.
WORKERS ?= -n auto --dist worksteal
EVIDENCE_ARGS ?=
EXTRAS_use := images
EXTRAS_dev := dev

.PHONY: help demo test check docs evidence format slow clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.use  ## set up, then compress a small trained network and write its report
	@$(BIN)/interpress demo

test: $(VENV)/.dev  ## set up, then run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(WORKERS) $(PYTEST_ARGS)

check: $(VENV)/.dev  ## format check, lint, type check and tests; all must pass
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) docs
	$(MAKE) test

docs: $(VENV)/.dev  ## build the documentation into build/docs; a warning is an error
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs

evidence: $(VENV)/.dev  ## make all figures again; EVIDENCE_ARGS="--data DIR --weights DIR --budget-minutes 30"
	$(BIN)/python -m benchmarks all $(EVIDENCE_ARGS)
	$(BIN)/python -m benchmarks page

slow: $(VENV)/.dev  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

format: $(VENV)/.dev  ## rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "interpress needs Python 3.10 or newer; run: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# One stamp per set of dependencies; a failed install leaves none, so the next run tries again.
$(VENV)/.use $(VENV)/.dev: $(VENV)/.%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS_$*)]"
	@touch $@
