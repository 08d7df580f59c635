# `make` says what there is. Everything happens in .venv/ (made here) and .demo/ (the demo's data, results and state).

PYTHON ?= python3.11
PYTHON_WITHOUT_TORCH ?= python3.13
BIN := .venv/bin
# Plain Python and one small Ray: the rooms, and of the flows what needs no job that runs.
LIGHT := tests/tasks tests/flows/job $(patsubst %,tests/flows/schedule/test_%.py,partitions deadlines cron)
AT_LEAST_WITHOUT_TORCH := 2500
LOCKS := $(wildcard constraints*.txt)
# TEST_REPORTS: a folder for the times of the tests, one file a target.
REPORT = $(if $(TEST_REPORTS),--junitxml="$(TEST_REPORTS)/$@.xml")
PYTEST = PREFECT_HOME="$(CURDIR)/.demo/prefect-tests" $(BIN)/python -m pytest $(REPORT)
# The files in their own order, a file to a process: what a file's tests share is made once.
IN_TWO = --numprocesses=2 --dist=loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help install demo docs test test-without-torch slow chaos nightly lint bench lock stop clean

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 26

install: .venv/installed ## make .venv and install Overnight with what the demo needs

demo: .venv/installed ## make real data, train a model, run the jobs, say where everything is; again: show, then force
	@$(BIN)/python demo/run.py

docs: .venv/installed-dev ## build the documentation site into build/docs; a warning is an error
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --nitpicky --fresh-env --quiet -b html docs build/docs
	@$(BIN)/python docs/check_site.py build/docs

test: lint ## lint, then the tests, without the slow ones and the faults; PYTEST_ARGS="-k resume" narrows them
	@echo "Running the tests in two processes; each starts a Ray, a Prefect server and an S3 server of its own"
	@$(PYTEST) $(IN_TWO) -m "not slow and not chaos and not nightly" $(PYTEST_ARGS)

test-without-torch: .venv-3.13/installed ## the light tests that need no PyTorch, on Python 3.13
	@PREFECT_HOME="$(CURDIR)/.demo/prefect-tests" .venv-3.13/bin/python -m pytest --without-torch=$(AT_LEAST_WITHOUT_TORCH) \
		$(IN_TWO) $(REPORT) -m "not slow and not chaos and not nightly" $(LIGHT) $(PYTEST_ARGS)

slow: .venv/installed-dev ## the tests that take more than about ten seconds each, and the commands of every page
	@$(PYTEST) $(IN_TWO) -m "slow and not chaos and not nightly" $(PYTEST_ARGS)

chaos: .venv/installed-dev ## kill, stop and cut off everything that a run needs, in two processes; nothing else should be busy
	@$(PYTEST) $(IN_TWO) -m "chaos and not nightly" $(PYTEST_ARGS)

nightly: .venv/installed-dev ## ten series of kills, 365 partitions, Ceph, Compose, damaged files: two hours or more
	@$(PYTEST) -m nightly $(PYTEST_ARGS)

lint: .venv/installed-dev ## style, types and the rules about who imports whom
	@echo "Checking style, types (half a minute the first time) and who imports whom"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

stop: ## stop the Prefect server that the demo started
	@test ! -e .demo/prefect/server.pid || PREFECT_HOME="$(CURDIR)/.demo/prefect" $(BIN)/prefect server stop

clean: stop ## remove the demo's data, results and state; keep .venv
	rm -rf .demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build

bench: .venv/installed ## install what benchmarks/peers.py compares with
	@$(BIN)/python .ci/install.py bench

lock: .venv-lock/bin/uv ## write the exact versions into constraints*.txt; LOCK=--upgrade takes the newest
	.venv-lock/bin/python .ci/lock.py $(LOCK)

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml $(LOCKS)
	@$(BIN)/python .ci/install.py demo
	@touch $@

.venv/installed-dev: .venv/installed
	@$(BIN)/python .ci/install.py dev
	@touch $@

.venv-lock/bin/uv:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --disable-pip-version-check --quiet uv

.venv-3.13/bin/python:
	@$(PYTHON_WITHOUT_TORCH) --version || { echo "expected Python 3.13 as $(PYTHON_WITHOUT_TORCH), found none: install it," \
		"or name it: make test-without-torch PYTHON_WITHOUT_TORCH=/path/to/python3.13"; exit 1; }
	$(PYTHON_WITHOUT_TORCH) -m venv .venv-3.13

.venv-3.13/installed: .venv-3.13/bin/python pyproject.toml $(LOCKS)
	@.venv-3.13/bin/python .ci/install.py without-torch
	@touch $@
