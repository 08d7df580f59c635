"""The workers of a local Ray are forked from a process that has imported what all of them need."""

import subprocess
import sys
from functools import partial

import pytest

from overnight.flows.job.model import Job
from overnight.flows.runs.early_imports import (
    S3_IMPORTS,
    WORKER_IMPORTS,
    WRITER_IMPORTS,
    first_imports,
    fork_server_for_local_ray,
    import_all,
)
from overnight.tasks.workers import fork_server
from overnight.tasks.workers.forked_process import in_process_of_its_own

READ, TRY = "overnight.tasks.ingest.reading.read_units", "overnight.tasks.infer.trial"


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


@pytest.mark.parametrize(("folder", "modules"), [("s3://bucket/photos", [S3_IMPORTS]), ("/data/photos", [])])
def test_the_client_of_s3_is_imported_early_if_the_job_names_s3(folder: str, modules: list[str]) -> None:
    sink = {"kind": "parquet", "path": "/data/out"}
    job = Job.model_validate({"name": "photos", "source": {"kind": "images", "path": folder}, "sink": sink})
    assert first_imports(job) == [WORKER_IMPORTS, *modules]


def test_what_is_imported_early_is_there() -> None:
    import_all([S3_IMPORTS, WRITER_IMPORTS])
    assert loaded(S3_IMPORTS, WRITER_IMPORTS, "s3fs") == [True, True, True]


@pytest.mark.parametrize(
    ("process", "heavy"),
    [
        ("overnight.api.local_run", ("ray.data", "pandas", "torch")),  # of a flow
        ("overnight.tasks.workers.supervisor", ("ray", "pyarrow", "numpy")),
        (WORKER_IMPORTS, ("prefect", "ray.data", "pandas", "s3fs", "torch")),
    ],
)
def test_a_process_does_not_import_what_only_others_need(process: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {process}; print(sorted({set(heavy)} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_writer_that_is_imported_early_is_the_sink_that_stages_parts() -> None:
    from overnight.tasks.write.stream.staging import Staging

    assert Staging.__module__ == WRITER_IMPORTS
