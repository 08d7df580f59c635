"""A job file with `run_after`: the other jobs that it knows, and the partitions that a partition needs."""

from pathlib import Path
from typing import Any

import pytest

from overnight.flows.job.loading import load_job, read_job, relative_paths
from overnight.flows.runs.run import describe_run
from overnight.flows.schedule.run_after import started_partition
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
    assert [(after.upstream.name, after.count) for after in load_job(two).run_after] == [("orders", 1), ("prices", 7)]
    assert load_job(two).run_after[1].upstream.job_file == str(tmp_path / "prices.yaml")
    assert "run_after.job: orders.yaml" in relative_paths(read_job(one))
    assert "run_after.1.job: prices.yaml" in relative_paths(read_job(two))


@pytest.mark.parametrize(
    ("partition", "needs"),
    [("same", ["2026-03-01"]), ("last 3", ["2026-02-27", "2026-02-28", "2026-03-01"])],
)
def test_a_day_needs_the_same_day_or_the_last_days(partition: str, needs: list[str]) -> None:
    write("orders")
    [after] = load_job(write("a", run_after={"job": "orders.yaml", "partition": partition})).run_after
    assert after.partitions("2026-03-01") == needs


def test_a_job_without_partitions_needs_the_other_one_or_whatever_is_published() -> None:
    write("orders", "in"), write("days")
    [same] = load_job(write("a", "in", run_after={"job": "orders.yaml"})).run_after
    [every] = load_job(write("b", "in", run_after={"job": "days.yaml", "partition": "all"})).run_after
    assert (same.partitions("all"), every.partitions("all")) == (["all"], [])


def test_a_day_needs_its_hours_and_all_regions_and_the_event_of_an_hour_names_the_day() -> None:
    write("orders", "in/{date}/{hour}/{region}", partitions={"every": "hour", "region": ["eu", "us"]})
    job = load_job(write("a", run_after={"job": "orders.yaml"}))
    names = job.run_after[0].partitions("2026-03-01")
    assert (names[0], names[-1], len(names)) == ("2026-03-01T00,eu", "2026-03-01T23,us", 48)
    assert started_partition(job) == "{{ event.payload.day }}"
    hours = load_job("orders.yaml")
    assert started_partition(hours) == "{{ event.payload.hour }},{{ event.payload.value }}"


def test_jobs_that_follow_change_no_results() -> None:
    write("orders")
    plain = load_job(write("a"))
    following = load_job(write("a", run_after={"job": "orders.yaml"}))
    runs = [describe_run(job, "2026-03-01") for job in (plain, following)]
    assert runs[0].fingerprint == runs[1].fingerprint


@pytest.mark.parametrize(
    ("own", "other", "partition", "message"),
    [
        (DATED, "in", "same", "partitions in both jobs, or in none; found this job with partitions, and"),
        ("in", DATED, "same", "found this job without partitions, and"),
        ("in", "in", "last 2", "expected partitions in both jobs, of time in this one; found this job without"),
        (DATED, DATED, "all", "expected this job without partitions, so without {partition} in its source; found"),
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
