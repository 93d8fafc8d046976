# Every target sets up what it needs: a virtual environment in .venv with the locked packages. Python 3.11 or newer is
# all that must be there; uv is used where it is found, pip where not.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

export KEDRO_DISABLE_TELEMETRY := 1
export MLFLOW_DISABLE_TELEMETRY := true

.DEFAULT_GOAL := help
.PHONY: help setup run viz ui docs test check lint types layers lock clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(READY)  ## make .venv with the locked packages

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "Python 3.11 or newer is needed; this is %d.%d. Give another one: make PYTHON=python3.11" % v[:2])'
	@if command -v uv >/dev/null 2>&1; then \
		echo "Installing with uv (the first time: some 6 GB, mostly PyTorch)"; \
		{ test -x $(BIN)/python || uv venv --quiet --python $(PYTHON) $(VENV); } \
		&& uv pip install --quiet --python $(BIN)/python -r requirements.lock \
		&& uv pip install --quiet --python $(BIN)/python --no-deps --editable .; \
	else \
		echo "Installing with pip (the first time: some 6 GB, mostly PyTorch; this takes minutes)"; \
		{ test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); } \
		&& $(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock \
		&& $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .; \
	fi
	@touch $(READY)

run: $(READY)  ## all methods on real digits, in minutes, with a report
	@$(BIN)/kedro run --env=quick

viz: $(READY)  ## the pipeline in the browser (kedro-viz)
	@$(BIN)/kedro viz run --host=127.0.0.1 --pipeline=compare_hetero_digits --env=quick

ui: $(READY)  ## the runs in the browser (MLflow)
	@$(BIN)/python -m ktpfl_pipeline.ui

docs: $(READY)  ## the documentation as a site, in build/docs; without a network
	@$(BIN)/sphinx-build -q -W --keep-going -c docs . build/docs
	@echo "Open build/docs/index.html"

test: $(READY)  ## the whole test suite, in two processes
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=10

check: lint types layers  ## ruff, mypy, import-linter

lint: $(READY)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY)
	@$(BIN)/mypy

layers: $(READY)
	@$(BIN)/lint-imports

lock: $(READY)  ## renew requirements.lock from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --extra dev --extra docs --universal --python-version 3.11 --no-header --no-annotate --upgrade -o requirements.lock

clean:  ## remove what runs wrote: results, checkpoints, tracked runs (not downloads)
	find data/02_intermediate data/03_primary data/05_model_input data/06_models data/07_model_output data/08_reporting -mindepth 1 ! -name .gitkeep -delete
	rm -rf mlruns mlflow.db
