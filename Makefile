# Every target sets up what it needs: Python 3.11 or newer, git and make are enough.
# Another interpreter: make PYTHON=python3.13 test (after `make clean` if .venv exists).

PYTHON ?= python3
WORKERS ?= auto
ARGS ?=
# make PIPFLAGS= setup shows what pip does
PIPFLAGS ?= -qq

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check $(PIPFLAGS)

# The workers of pytest-xdist share the cores among themselves, so each has one BLAS thread.
ONE_THREAD := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 VECLIB_MAXIMUM_THREADS=1
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest --numprocesses=$(WORKERS) --maxprocesses=8

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow lint format bench docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## create .venv with every version as constraints.txt pins it

demo: $(STAMP) ## fit a simulated problem: 100 rows, 512 features
	@$(BIN)/python examples/demo.py

test: lint ## lint, then every test but the slow ones (ARGS="-k prior" to choose)
	@$(PYTEST) $(ARGS)

test-slow: $(STAMP) ## the slow tests alone
	@$(PYTEST) -m slow $(ARGS)

lint: $(STAMP) ## style, formatting, types, import layers
	@$(BIN)/python -m ruff check --quiet
	@$(BIN)/python -m ruff format --check --quiet || \
	    { echo 'Some files are not formatted: make format' >&2; exit 1; }
	@$(BIN)/python -m mypy
	@$(BIN)/lint-imports --no-logo

format: $(STAMP) ## format and mend what ruff can mend by itself
	@$(BIN)/python -m ruff check --fix
	@$(BIN)/python -m ruff format

bench: $(STAMP) ## conditioning against BLAS; accuracy and convergence (a minute)
	@$(BIN)/python benchmarks/conditioning.py
	@$(BIN)/python benchmarks/single_feature.py
	@$(BIN)/python benchmarks/compressive_sensing.py
	@$(BIN)/python benchmarks/paper_sets.py

docs: $(STAMP) ## check the links, the snippets and the equation labels of the docs
	@$(ONE_THREAD) $(BIN)/python -m pytest tests/test_docs.py tests/test_equations.py

clean: ## remove .venv, caches and build products
	@rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find src tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# Written last, so that an interrupted set-up is taken up again. The build backend is installed
# first and used without isolation: an isolated build would fetch one that nothing pins.
$(STAMP): pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null || \
	    { echo 'No $(PYTHON) here. epslab needs Python 3.11 or newer: make PYTHON=/path/to/python setup' >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "epslab needs Python 3.11 or newer and $(PYTHON) is $$("$(PYTHON)" --version 2>&1): make PYTHON=/path/to/newer/python setup" >&2; exit 1; }
	@echo 'Setting up $(VENV) as constraints.txt pins it (about a minute) ...'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VENV)
	@$(PIP) install -c constraints.txt hatchling editables
	@$(PIP) install --no-build-isolation -c constraints.txt -e '.[dev]'
	@touch $(STAMP)
