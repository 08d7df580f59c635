"""The workers of a local Ray are forked from a process that has imported what all of them need."""

import sys
from functools import partial

import pytest

from overnight.flows.runs.early_imports import WORKER_IMPORTS, fork_server_for_local_ray
from overnight.tasks.workers import fork_server
from overnight.tasks.workers.forked_process import in_process_of_its_own

READ, TRY = "overnight.tasks.ingest.reading.read_units", "overnight.tasks.infer.autotune.trial"


def loaded(*modules: str) -> list[bool]:
    """Return for each module whether this process has imported it."""
    return [module in sys.modules for module in modules]


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without Ray and without the session's fork server."""
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv(fork_server.ADDRESS, raising=False)


@pytest.mark.skipif(sys.platform != "linux", reason="the fork server runs on Linux only")
def test_a_forked_worker_has_the_modules_that_read_rows_and_try_models_and_no_prefect(no_ray: None) -> None:
    with fork_server_for_local_ray():
        found = in_process_of_its_own(partial(loaded, WORKER_IMPORTS, READ, TRY, "prefect"), print)
    assert found == [True, True, True, False]


def test_the_switch_of_the_fork_server_is_respected(no_ray: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fork_server.ADDRESS, fork_server.OFF)
    with fork_server_for_local_ray():
        assert not fork_server.is_there()
