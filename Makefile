# The two commands of the README are `make demo` and `make test`; each installs what it needs.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-slow check format clean

demo: $(READY)
	$(BIN)/dares demo

test: $(READY)
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "dares needs Python 3.10 or newer; $(PYTHON) is older: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $(READY)
