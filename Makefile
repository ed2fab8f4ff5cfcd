# make demo | demo-small | test | check | bench | docs: each sets up .venv first. PYTHON and VENV can be overridden.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CPUS := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)

.PHONY: setup demo demo-small test check bench docs clean
.DELETE_ON_ERROR:

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Trimtab needs Python 3.11 or newer; name one with PYTHON=" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/trimtab init demo --preset demo --existing keep
	$(BIN)/trimtab run demo

demo-small: setup
	$(BIN)/trimtab init demo-small --preset tiny --existing keep
	$(BIN)/trimtab run demo-small

test: setup
	$(BIN)/python -m pytest -n $(CPUS) --dist worksteal

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry src

bench: setup
	$(BIN)/python -m bench.tiny_world.claims

docs: setup
	$(BIN)/python -m trimtab.cli.docs

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
