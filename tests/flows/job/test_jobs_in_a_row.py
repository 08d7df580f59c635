"""A job file whose source is another job, and what it takes from it. messages.txt has the chains that are refused."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from overnight.flows.job.loading import load_job, read_job, relative_paths
from tests.jobs import write_job

Write = Callable[..., Path]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a job file `NAME.yaml` in the working directory with a sink of its own."""
    monkeypatch.chdir(tmp_path)

    def written(name: str, **source: Any) -> Path:
        sink = {"kind": "parquet", "path": f"out/{name}"}
        return write_job(tmp_path / f"{name}.yaml", name=name, source=source, sink=sink)

    return written


def test_a_job_has_the_partitions_of_the_job_that_it_reads(job: Write, tmp_path: Path) -> None:
    job("dated", kind="csv", path="in/{partition}/")
    job("undated", kind="csv", path="in")
    first, second = (load_job(job("a", kind="job", job=f"{name}.yaml")) for name in ("dated", "undated"))
    assert (first.is_dated, second.is_dated) == (True, False)
    assert first.source.upstream.state == f"{tmp_path}/out/dated/_overnight"
    job("a", kind="job", job="dated.yaml")
    job("b", kind="job", job="a.yaml")
    third = load_job(job("c", kind="job", job="b.yaml"))
    assert third.is_dated
    assert pickle.loads(pickle.dumps(third.source)).is_dated  # as a worker gets it
    assert third.result_settings()["source"] == {"kind": "job", "job": "b"}


def test_the_path_of_the_job_is_taken_from_the_working_directory_or_a_variable(
    job: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job("orders", kind="csv", path="in")
    path = job("totals", kind="job", job="orders.yaml")
    assert load_job(path).source.job == f"{tmp_path}/orders.yaml"
    assert "source.job: orders.yaml" in relative_paths(read_job(path))
    monkeypatch.setenv("JOBS", str(tmp_path))
    assert load_job(job("totals", kind="job", job="${JOBS}/orders.yaml")).source.upstream.name == "orders"


def test_paths_in_a_list_are_made_absolute_and_named_by_their_place(job: Write, tmp_path: Path) -> None:
    path = job("orders", kind="csv", path=["in/*.csv", "s3://b/{partition}/", "more/"])
    assert load_job(path).source.path == [f"{tmp_path}/in/*.csv", "s3://b/{partition}/", f"{tmp_path}/more/"]
    assert relative_paths(read_job(path))[:2] == ["source.path.0: in/*.csv", "source.path.2: more/"]
    assert load_job(path).is_dated
