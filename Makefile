# make demo   fit, fill and picture, on learning curves that the project trained itself
# make test   lint, types, layers and tests
# make bench  the timings in README.md

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test bench clean

# torch comes first and by its exact version: a looser request may fetch a build for other hardware.
.venv/installed: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check "$$(grep '^torch==' requirements.lock)"
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

demo: .venv/installed
	$(BIN)/lkgp demo

test: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2

bench: .venv/installed
	$(BIN)/python benchmarks/products.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/learning_curves.py

clean:
	rm -rf .venv
