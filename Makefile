# `make` lists the targets. They write to .venv/ (made here) and .demo/ (the demo's data, results and state).

PYTHON ?= python3.11
PYTHON_WITHOUT_TORCH ?= python3.13
BIN := .venv/bin
# Plain Python and one small Ray: the tests of the rooms, and those tests of flows that run no job.
LIGHT := tests/tasks tests/flows/job $(patsubst %,tests/flows/schedule/test_%.py,partitions cron)
# What these find does not depend on the Python: files for libraries in C and C++, what Ray and stores do, and long waits.
ONCE := $(patsubst %,--ignore=tests/tasks/%.py,ingest/test_hostile_files ingest/test_killers preprocess/test_truncated_media \
	preprocess/test_lying_media storage/test_list_s3 storage/test_s3 storage/test_s3_bucket infer/test_trial_runner \
	infer/models/test_openai infer/test_worker workers/test_watchdog shuffle/test_reorder \
	resources/test_ray_internals resources/test_waiting storage/test_fetch storage/test_location storage/test_credentials \
	storage/test_google_requests state/test_lease ingest/sources/test_parquet ingest/reading/test_table_blocks \
	ingest/listing/test_wait_for_inputs ingest/listing/test_take_manifest ingest/test_versioned_file \
	write/checks/test_column_statistics write/checks/test_user_check write/sinks/test_sql infer/chat/test_server_process)
AT_LEAST_WITHOUT_TORCH := 2200
LOCKS := $(wildcard constraints*.txt)
# TEST_REPORTS: a folder for the times of the tests, one file per target.
REPORT = $(if $(TEST_REPORTS),--junitxml="$(TEST_REPORTS)/$@.xml")
PYTEST = PREFECT_HOME="$(CURDIR)/.demo/prefect-tests" $(BIN)/python -m pytest $(REPORT)
# The files that have a mark: to collect all files takes each process a minute of CPU.
marked = $(sort $(shell grep -rl --include='test_*.py' 'mark\.$(1)\b' tests))
# The files run in their own order, each in one process, so that the fixtures of a file are made once.
IN_TWO = --numprocesses=2 --dist=loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help install demo docs size test test-without-torch slow chaos drawn nightly mutations lint bench lock stop clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 26

install: .venv/installed ## make .venv, and install Overnight and the packages of the demo

demo: .venv/installed ## make data, train a model, run the jobs, print the results; a second time: show them, then run again
	@$(BIN)/python demo/run.py

docs: .venv/installed-dev ## build the documentation site into build/docs; a warning is an error
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --nitpicky --fresh-env --quiet -b html docs build/docs
	@$(BIN)/python docs/check_site.py build/docs

test: lint ## lint, then run the tests except slow ones and faults; PYTEST_ARGS="-k resume" selects some
	@echo "Running the tests in two processes; each starts its own Ray, Prefect server and S3 server"
	@$(PYTEST) $(IN_TWO) -m "not slow and not chaos and not nightly" $(PYTEST_ARGS)

test-without-torch: .venv-3.13/installed ## run the light tests without PyTorch, on Python 3.13
	@PREFECT_HOME="$(CURDIR)/.demo/prefect-tests" .venv-3.13/bin/python -m pytest --without-torch=$(AT_LEAST_WITHOUT_TORCH) \
		$(IN_TWO) $(REPORT) -m "not slow and not chaos and not nightly" $(LIGHT) $(ONCE) $(PYTEST_ARGS)

slow: .venv/installed-dev ## run the tests that take more than about ten seconds each, and the commands of the pages
	@$(PYTEST) $(IN_TWO) -m "slow and not chaos and not nightly" $(call marked,slow) $(PYTEST_ARGS)

chaos: .venv/installed-dev ## run the fault tests, which kill, stop and disconnect processes; use an otherwise idle machine
	@$(PYTEST) $(IN_TWO) -m "chaos and not nightly" $(call marked,chaos) $(PYTEST_ARGS)

drawn: .venv/installed-dev ## run the share of the slow tests and the faults that this commit draws, as CI does
	@$(BIN)/python .ci/draw.py .demo/drawn.txt
	@$(PYTEST) $(IN_TWO) @.demo/drawn.txt $(PYTEST_ARGS)

nightly: .venv/installed-dev ## run the long tests: ten series of kills, a node that dies, 365 partitions, Compose, damaged files, a second user, a week of hours, and all double faults of a publish, about a day
	@$(PYTEST) -m nightly $(call marked,nightly) $(PYTEST_ARGS)

mutations: .venv/installed-dev ## change 20 of the newest lines, one at a time, and count the changes that the tests detect; four minutes
	@$(BIN)/python .ci/mutations.py changed $(MUTATIONS_ARGS)

lint: .venv/installed-dev ## check style, types and the rules of imports
	@echo "Checking style, types (half a minute the first time) and the rules of imports"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

size: ## print the lines of each room beside its bound, and fail if a room has more
	@$(PYTHON) .ci/size.py

stop: ## stop the Prefect server of the demo
	@test ! -e .demo/prefect/server.pid || PREFECT_HOME="$(CURDIR)/.demo/prefect" $(BIN)/prefect server stop

clean: stop ## remove the demo's data, results and state; keep .venv
	rm -rf .demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build

bench: .venv/installed ## install the libraries that benchmarks/peers.py compares with
	@$(BIN)/python .ci/install.py bench

lock: .venv-lock/bin/uv ## write the exact versions to constraints*.txt; LOCK=--upgrade uses the newest
	.venv-lock/bin/python .ci/lock.py $(LOCK)

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml $(LOCKS)
	@$(BIN)/python .ci/install.py demo
	@touch $@

.venv/installed-dev: .venv/installed
	@$(BIN)/python .ci/install.py dev
	@touch $@

.venv-vllm/installed: .ci/install.py
	$(PYTHON) -m venv .venv-vllm
	@.venv-vllm/bin/python .ci/install.py vllm
	@touch $@

.venv-clients/installed: .ci/install.py
	$(PYTHON) -m venv .venv-clients
	@.venv-clients/bin/python .ci/install.py clients
	@touch $@

.venv-lock/bin/uv:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --disable-pip-version-check --quiet uv

.venv-3.13/bin/python:
	@$(PYTHON_WITHOUT_TORCH) --version || { echo "expected Python 3.13 as $(PYTHON_WITHOUT_TORCH), found none. Install it," \
		"or name it: make test-without-torch PYTHON_WITHOUT_TORCH=/path/to/python3.13"; exit 1; }
	$(PYTHON_WITHOUT_TORCH) -m venv .venv-3.13

.venv-3.13/installed: .venv-3.13/bin/python pyproject.toml $(LOCKS)
	@.venv-3.13/bin/python .ci/install.py without-torch
	@touch $@
