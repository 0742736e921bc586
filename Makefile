# Two commands: `make demo` shows the tool on data that comes with it, `make test` checks everything.
# Both make .venv from nothing (Python 3.11 by default: make demo PYTHON=python3.10) and are quick the second time.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo notebooks test test-flare test-mlflow fuzz coverage matrix arm64 bounds lint pages docs clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

KERNEL := setup.py $(wildcard src/fedsift/crypto/*.c)

$(VENV)/.core: pyproject.toml constraints.txt $(KERNEL) | $(BIN)/python
	@echo "installing fedsift (a minute or two, once) ..."
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(KERNEL) | $(BIN)/python
	@echo "installing fedsift with its test tools (a few minutes, once) ..."
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.core

demo: $(VENV)/.core
	$(BIN)/fedsift demo --out demo-run

# Pages that are made of benchmark tables: after a benchmark has written a new one.
pages: $(VENV)/.dev
	$(BIN)/python benchmarks/render_results.py
	$(BIN)/python benchmarks/choosing.py --render
	$(BIN)/python benchmarks/cost_table.py
	$(BIN)/python benchmarks/page_tables.py

# The notebooks of examples/notebooks, run: pages in docs/notebooks, .ipynb files in build/notebooks (two minutes).
notebooks: $(VENV)/.dev
	$(BIN)/python tools/notebooks.py

# The documentation as a site in build/site, with search and an API reference; a warning is a failure.
docs: | $(BIN)/python
	$(PIP) 'mkdocs-material>=9.5,<10' 'mkdocstrings[python]>=0.26' ruff
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Every method in FLARE's simulator and between real FLARE processes, faults, and the page docs/deploy.md (half an hour).
test-flare: $(VENV)/.dev
	$(BIN)/python -m pytest -m flare

# Results to a real MLflow, in a folder of the test's own; `make test` skips it where MLflow is not installed. The same
# for Shapley values beside the package shap.
test-mlflow: $(VENV)/.dev
	$(PIP) -e '.[mlflow]' shap
	$(BIN)/python -m pytest tests/test_tracking.py tests/test_explain.py

# Half a million changed requests against sites with the default policy, and as many changed replies to a coordinator;
# `make test` sends 1,500 requests and 200 replies.
fuzz: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m hostile.sweep
	PYTHONPATH=tests $(BIN)/python -m hostile.fuzz --requests 500000 --replies 500000

# Which lines no test runs; the total stands in the last line. Longer than make test: one process.
coverage: $(VENV)/.dev
	$(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

# A wheel, built and tried away from the source tree, on every Python from 3.10 to 3.13 that is found; names the absent.
matrix:
	$(PYTHON) tools/matrix.py

# A wheel for arm64, cross-compiled (Debian: gcc-aarch64-linux-gnu). tests/test_arm64.py runs its kernel under qemu-user.
arm64: $(VENV)/.dev
	CC=aarch64-linux-gnu-gcc LDSHARED="aarch64-linux-gnu-gcc -shared" _PYTHON_HOST_PLATFORM=linux-aarch64 \
	SETUPTOOLS_EXT_SUFFIX=.cpython-$$($(BIN)/python -c "import sys; print(*sys.version_info[:2], sep='')")-aarch64-linux-gnu.so \
	$(BIN)/python -m pip wheel --no-deps -w dist .

# The lowest version of every dependency, on the oldest Python that is found: a wheel, and the commands of the first page.
bounds:
	$(PYTHON) tools/bounds.py

clean:
	rm -rf $(VENV) build demo-run .pytest_cache .mypy_cache .ruff_cache .coverage* src/fedsift/crypto/*.so
