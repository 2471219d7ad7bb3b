# make demo   fit, fill and picture, on learning curves that the project trained itself
# make test   lint, types, layers and tests
# make torture  random problems against a dense oracle, damaged files and shared models; takes an hour on two cores
# make bench  lkgp and its neighbours on the same data; takes hours

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test torture bench clean

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

torture: .venv/installed
	$(BIN)/python -m tests.torture --count 5000 --page docs/accuracy.md
	$(BIN)/python tests/torture/fuzz_model_files.py --count 5000
	$(BIN)/python tests/torture/share_among_threads.py --rounds 200
	$(BIN)/python tests/torture/find_optima.py
	$(BIN)/python tests/torture/stated_errors.py

# LKGP_DATA names the folder with the data.
bench: .venv/installed
	$(BIN)/lkgp bench --output benchmarks.json --page docs/performance.md

clean:
	rm -rf .venv
