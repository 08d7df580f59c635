"""A job file with `run_after`: the other jobs that it knows, and the partitions that a partition needs."""

from pathlib import Path
from typing import Any

import pytest

from overnight.flows.job.loading import load_job, read_job, relative_paths
from overnight.flows.job.run_after import RunAfter
from overnight.flows.runs.run import describe_run
from overnight.tasks.errors import JobError
from tests.jobs import write_job

DATED = "in/{partition}"


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, path: str = DATED, **sections: Any) -> Path:
    places = {"source": {"kind": "jsonl", "path": path}, "sink": {"kind": "parquet", "path": f"out/{name}"}}
    return write_job(Path(f"{name}.yaml"), name=name, **places, **sections)


def test_one_job_or_a_list_of_jobs_is_followed_by_full_paths(tmp_path: Path) -> None:
    write("orders"), write("prices")
    one = write("one", run_after={"job": "orders.yaml"})
    two = write("two", run_after=[{"job": "orders.yaml"}, {"job": "prices.yaml", "partition": "last 7"}])
    assert [after.upstream.name for after in load_job(one).run_after] == ["orders"]
    assert [(after.upstream.name, after.days) for after in load_job(two).run_after] == [("orders", 1), ("prices", 7)]
    assert load_job(two).run_after[1].upstream.job_file == str(tmp_path / "prices.yaml")
    assert "run_after.job: orders.yaml" in relative_paths(read_job(one))
    assert "run_after.1.job: prices.yaml" in relative_paths(read_job(two))


def test_a_partition_needs_the_same_the_last_days_or_whatever_is_published() -> None:
    needs = {
        text: RunAfter(job="a.yaml", partition=text).partitions("2026-03-01") for text in ("same", "last 3", "all")
    }
    assert needs == {"same": ["2026-03-01"], "last 3": ["2026-02-27", "2026-02-28", "2026-03-01"], "all": []}
    assert RunAfter(job="a.yaml").partitions("all") == ["all"]


def test_jobs_that_follow_change_no_results() -> None:
    write("orders")
    plain = load_job(write("a"))
    following = load_job(write("a", run_after={"job": "orders.yaml"}))
    runs = [describe_run(job, "2026-03-01") for job in (plain, following)]
    assert runs[0].fingerprint == runs[1].fingerprint


@pytest.mark.parametrize(
    ("own", "other", "partition", "message"),
    [
        (DATED, "in", "same", "expected {partition} in the sources of both jobs, or none, found this job with it, and"),
        ("in", DATED, "same", "found this job without it, and"),
        ("in", "in", "last 2", "expected {partition} in the sources of both jobs, found this job without it"),
        (DATED, DATED, "all", "expected no {partition} in the source of this job, found this job with it"),
    ],
)
def test_partitions_that_do_not_fit_are_refused(own: str, other: str, partition: str, message: str) -> None:
    write("orders", other)
    path = write("totals", own, run_after={"job": "orders.yaml", "partition": partition})
    with pytest.raises(JobError) as error:
        load_job(path)
    assert str(error.value).startswith(f"totals.yaml: run_after.job: run_after.partition: {partition}: expected")
    assert message in str(error.value)


def test_a_circle_of_jobs_is_refused() -> None:
    write("a", run_after={"job": "b.yaml"})
    write("b", run_after={"job": "a.yaml"})
    with pytest.raises(JobError, match=r"a job that does not need this one, found a\.yaml needs b\.yaml needs a\.yaml"):
        load_job("a.yaml")
