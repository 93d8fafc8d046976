# Every target sets up what it needs: a virtual environment in .venv with the locked packages. Python 3.11 or newer is
# all that must be there; uv is used where it is found, pip where not.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

export KEDRO_DISABLE_TELEMETRY := 1
export MLFLOW_DISABLE_TELEMETRY := true
unexport PYTHONDONTWRITEBYTECODE  # with it every process would compile PyTorch again, for five seconds

.DEFAULT_GOAL := help
.PHONY: help setup run compare paper external results viz ui docs docs-check test test-portable prose flower check lint types layers gpu-check lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(READY)  ## make .venv with the locked packages

# CPU=1 leaves NVIDIA's libraries out and takes PyTorch's build for CPUs, a twentieth of the download. Only uv knows where
# these builds are, so pip installs it into build/uv if it is missing.
ifdef CPU
WANTED := build/requirements-cpu.lock
BACKEND := --torch-backend=cpu
UNWANTED := ^(nvidia|cuda|triton)-?
export PATH := $(PATH):$(CURDIR)/build/uv/bin
else
WANTED := requirements.lock
UNWANTED := ^$$
endif

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and "Python 3.11 or newer is needed; this is %d.%d. Give another one: make PYTHON=python3.11" % v[:2])'
	@! test -x $(BIN)/python || $(BIN)/python -I -c "$$OTHER_CLONE"
ifdef CPU
	@command -v uv >/dev/null 2>&1 || { echo "Installing uv into build/uv, to find PyTorch's builds for CPUs"; \
		$(PYTHON) -m venv build/uv && build/uv/bin/python -m pip install --quiet --disable-pip-version-check uv; }
	@mkdir -p build && grep -vE '$(UNWANTED)' requirements.lock > $(WANTED)
endif
	@if command -v uv >/dev/null 2>&1; then \
		echo "Installing $$(wc -l < $(WANTED)) packages into $(VENV) with uv (once$(if $(CPU),,; some 3 GB to download, 6 GB on the disk, mostly PyTorch))"; \
		{ test -x $(BIN)/python || uv venv --quiet --python $(PYTHON) $(VENV); } \
		&& { uv pip install --python $(BIN)/python $(BACKEND) -r $(WANTED) \
			|| { echo "$(if $(CPU),If PyTorch's builds for CPUs cannot be reached: make setup without CPU=1,)"; exit 1; }; } \
		&& uv pip install --quiet --python $(BIN)/python --no-deps --editable .; \
	else \
		echo "Installing $$(wc -l < $(WANTED)) packages into $(VENV) with pip (once; some 3 GB to download, 6 GB on the disk, mostly PyTorch;"; \
		echo "with uv on the path it takes a third of the time)"; \
		{ test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); } \
		&& $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -r $(WANTED) | awk "$$PIP_PROGRESS" \
		&& $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .; \
	fi
	@touch $(READY)

# The environment of another clone keeps that clone's package.
define OTHER_CLONE
import importlib.util, os, sys
found = importlib.util.find_spec("ktpfl_pipeline")
there = found and found.origin and os.path.dirname(os.path.realpath(found.origin))
if there and os.path.isdir(there) and there != os.path.realpath("src/ktpfl_pipeline"):
    sys.exit(f"$(VENV) has the package of {there}, and stays as it is. Give this clone an environment of its own: remove $(VENV) here (rm $(VENV), if it is a link), and run make setup.")
endef
export OTHER_CLONE

# Of pip's many lines: one for every 20 packages and for each large one, and what goes wrong.
define PIP_PROGRESS
/^Collecting/ { if (++n % 20 == 0) printf "  %3d packages found\n", n }
/Downloading .* \([0-9.]+ [MG]B\)/ { if (/GB\)/ || $$(NF - 1) ~ /\([0-9][0-9][0-9]/) printf "      downloading %s %s %s\n", $$2, $$(NF - 1), $$NF }
/^Installing collected/ { print "  installing them (this takes minutes)" }
/^ERROR|^WARNING/ { print }
{ fflush() }
endef
export PIP_PROGRESS

run: $(READY)  ## four methods on two partitions of digits, one where collaboration pays and one where it does not: two minutes
	@$(BIN)/kedro run --env=quick --pipelines=sweep_first_run  # without a name, Kedro would make all pipelines, for seconds

compare: $(READY)  ## all methods on one partition of digits
	@$(BIN)/kedro run --env=quick --pipelines=compare_hetero_digits --params hetero_digits.compare=all

# ONLY=table1,figure2 runs a part; PLAN=1 trains nothing; SCALE=light has the paper's sizes and small networks, SCALE=paper
# is for a GPU; FILES=1 reads data/01_raw/<name>.npz in place of downloads.
SCALE ?= two_cores
comma := ,

paper: $(READY)  ## the paper's tables and figures next to its numbers: hours; repeat the command to continue
	@$(BIN)/kedro run --pipelines=paper --env=$(SCALE) --params 'paper.only=$(subst $(comma),+,$(or $(ONLY),all)),paper.train=$(if $(PLAN),false,true),paper.files=$(if $(FILES),true,false)'

external: $(READY)  ## published numbers of other projects next to ours; ONLY=flamby_heart runs one setting
	@$(BIN)/python benchmarks/external.py run $(ONLY) && $(BIN)/python benchmarks/external.py table

results: $(READY)  ## the tables and figures of docs/results from the kept runs, in seconds and without images
	@for table in "converged.py page" "choices.py page" learned_page.py "map.py page" "pages.py table" "external.py table" "peers.py table" "paper_tables.py page" verdicts.py "paper_tables.py draw"; do \
	  $(BIN)/python benchmarks/$$table || exit 1; \
	done

viz: $(READY)  ## the pipeline in the browser (kedro-viz); PIPELINE=hetero_cifar ENV=light: another one than that of a comparison
	@$(BIN)/python -m ktpfl_pipeline.ui $(BIN)/kedro viz run --host=127.0.0.1 --include-hooks \
		$(if $(PIPELINE),--pipeline=$(PIPELINE) $(if $(ENV),--env=$(ENV)),--pipeline=compare_hetero_digits --env=quick)

ui: $(READY)  ## the runs in the browser (MLflow)
	@$(BIN)/python -m ktpfl_pipeline.ui

docs: $(READY)  ## the documentation as a site, in build/docs; without a network. Its gallery trains a comparison, once
	@$(BIN)/sphinx-build -q -W --keep-going -c docs . build/docs
	@echo "Open build/docs/index.html"

docs-check: $(READY)  ## check that the documentation is true: commands, links, numbers (minutes)
	@$(BIN)/python -m pytest docs/checks -n 2 --dist loadfile --no-loadscope-reorder

test: $(READY)  ## the whole test suite, in two processes
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=10

# The tests that compare numbers, with only the instructions that every x86-64 processor has.
PORTABLE := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE
OF_NUMBERS := tests/methods $(addprefix tests/core/,client matrix knowledge test_heads.py test_joint.py test_linalg.py) tests/models/test_pooling.py \
	$(addprefix tests/data/,test_feature_skew.py test_standardization.py sources/test_adaptation.py)
NOT_OF_NUMBERS := $(addprefix --ignore=tests/methods/test_,contract.py own_models.py texts.py features.py normalization.py one_architecture.py registry.py) \
	--deselect=tests/core/client/test_batch_norm.py::test_workers_and_a_resumed_run_change_nothing

test-portable: $(READY)  ## the tests of numbers, as on another processor
	@$(PORTABLE) $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(OF_NUMBERS) $(NOT_OF_NUMBERS)

prose: $(READY)  ## write tests/reports/prose.txt, the sentences that tests compare, after a change of wording
	@$(BIN)/python -m pytest tests/reports --write-prose

# Flower forces other versions of packages than the project takes beside it: an environment and a lock of its own.
FLOWER := .venv-flower

flower: $(FLOWER)/.ready  ## make .venv-flower, for real clients (needs uv)
	@echo "Real clients: docs/real_clients.md. Test them with $(FLOWER)/bin/python -m pytest -c flower/pyproject.toml flower/tests"

$(FLOWER)/.ready: flower/requirements.lock flower/pyproject.toml pyproject.toml
	@command -v uv >/dev/null 2>&1 || { echo "make flower needs uv: pip install uv"; exit 1; }
	@mkdir -p build && grep -vE '$(UNWANTED)' flower/requirements.lock > build/requirements-flower.lock
	@test -x $(FLOWER)/bin/python || uv venv --quiet --python $(PYTHON) $(FLOWER)
	@echo "Installing $$(wc -l < build/requirements-flower.lock) packages into $(FLOWER) with uv (once)"
	@uv pip install --python $(FLOWER)/bin/python --quiet $(BACKEND) -r build/requirements-flower.lock
	@uv pip install --quiet --python $(FLOWER)/bin/python --no-deps --editable . --editable flower
	@touch $@

check: lint types layers  ## ruff, mypy, import-linter

lint: $(READY)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY)
	@$(BIN)/mypy

layers: $(READY)
	@$(BIN)/lint-imports && PYTHONPATH=flower/src $(BIN)/lint-imports --config flower/pyproject.toml

gpu-check: $(READY)  ## test this project on a GPU in ten minutes; writes gpu_report.md; without a GPU it exits with 2
	@$(BIN)/python benchmarks/gpu_check.py

lock: $(READY)  ## renew the locks from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --extra dev --extra docs --universal --python-version 3.11 --no-header --no-annotate --upgrade -o requirements.lock
	uv pip compile pyproject.toml flower/requirements.in --universal --python-version 3.11 --no-header --no-annotate --upgrade -o flower/requirements.lock
	uv pip compile flower/client-requirements.in --universal --python-version 3.11 --no-header --no-annotate --upgrade -c flower/requirements.lock -o flower/client-requirements.txt

clean:  ## remove what runs wrote: results, checkpoints, tracked runs (not downloads)
	find data/02_intermediate data/03_primary data/05_model_input data/06_models data/07_model_output data/08_reporting -mindepth 1 ! -name .gitkeep -delete
	rm -rf mlruns mlflow.db
