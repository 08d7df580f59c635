"""A job file whose source is another job: what it takes from it, and which chains are refused."""

import pickle
from pathlib import Path

import pytest

from overnight.flows.job.loading import load_job, read_job, relative_paths
from tests.flows.job.jobs import complaint


@pytest.fixture
def job(write: object, tmp_path: Path):
    """Writes a job file `NAME.yaml` with a sink of its own, or with the sink of that name."""

    def written(name: str, source: str, kind: str = "parquet", sink: str = "") -> Path:
        path = tmp_path / f"{name}.yaml"
        lines = [f"name: {name}", f"source: {{{source}}}", f"sink: {{kind: {kind}, path: {sink or f'out/{name}'}}}"]
        path.write_text("\n".join(lines))
        return path

    return written


def test_a_job_has_the_partitions_of_the_job_that_it_reads(job, tmp_path):
    job("dated", 'kind: csv, path: "in/{partition}/"')
    job("undated", "kind: csv, path: in")
    first, second = (load_job(job("a", f"kind: job, job: {name}.yaml")) for name in ("dated", "undated"))
    assert (first.is_dated, second.is_dated) == (True, False)
    assert first.source.upstream.state == f"{tmp_path}/out/dated/_overnight"
    job("a", "kind: job, job: dated.yaml")
    job("b", "kind: job, job: a.yaml")
    assert load_job(job("c", "kind: job, job: b.yaml")).is_dated


def test_the_path_of_the_job_is_taken_from_the_working_directory_and_refused_in_deployments(job, tmp_path):
    job("orders", "kind: csv, path: in")
    path = job("totals", "kind: job, job: orders.yaml")
    assert load_job(path).source.job == f"{tmp_path}/orders.yaml"
    assert "source.job: orders.yaml" in relative_paths(read_job(path))


def test_the_place_of_the_file_may_be_in_a_variable(job, tmp_path, monkeypatch):
    job("orders", "kind: csv, path: in")
    path = job("totals", 'kind: job, job: "${JOBS}/orders.yaml"')
    assert "environment variable JOBS is not set" in complaint(path)
    monkeypatch.setenv("JOBS", str(tmp_path))
    assert load_job(path).source.upstream.name == "orders"


def test_what_a_worker_gets_knows_the_other_job(job):
    job("orders", 'kind: csv, path: "in/{partition}"')
    loaded = load_job(job("totals", "kind: job, job: orders.yaml"))
    assert pickle.loads(pickle.dumps(loaded.source)).is_dated
    assert loaded.result_settings()["source"] == {"kind": "job", "job": "orders"}


@pytest.mark.parametrize(
    ("reads", "words"),
    [
        ({"a": "a"}, "expected a job that does not read this one, found a.yaml reads a.yaml"),
        ({"a": "b", "b": "a"}, "found a.yaml reads b.yaml reads a.yaml"),
        ({"a": "b", "b": "c", "c": "b"}, "found b.yaml reads c.yaml reads b.yaml"),
    ],
)
def test_jobs_that_read_each_other_are_refused(job, reads, words):
    paths = {name: job(name, f"kind: job, job: {other}.yaml") for name, other in reads.items()}
    assert words in complaint(paths["a"])


def test_a_job_that_cannot_be_read_is_refused_with_its_own_reason(job, tmp_path):
    path = job("totals", "kind: job, job: orders.yaml")
    assert complaint(path) == f"{path}: source.job: {tmp_path}/orders.yaml: expected a job file, found no file."
    job("orders", "kind: csv, pth: in")
    assert f"{path}: source.job: {tmp_path}/orders.yaml: 2 problems\n  source.path: is missing" in complaint(path)
    job("orders", "kind: csv, path: in", "images")
    assert complaint(path).endswith("found kind: images in " + f"{tmp_path}/orders.yaml.")


def test_a_job_that_publishes_to_the_same_place_is_refused(job):
    job("orders", "kind: csv, path: in", sink="out/same")
    path = job("totals", "kind: job, job: orders.yaml", sink="out/same")
    assert "expected a job with another sink" in complaint(path)


def test_paths_in_a_list_are_made_absolute_and_named_by_their_place(job, tmp_path):
    path = job("orders", 'kind: csv, path: ["in/*.csv", "s3://b/{partition}/", "more/"]')
    assert load_job(path).source.path == [f"{tmp_path}/in/*.csv", "s3://b/{partition}/", f"{tmp_path}/more/"]
    assert relative_paths(read_job(path))[:2] == ["source.path.0: in/*.csv", "source.path.2: more/"]
    assert load_job(path).is_dated
    refused = job("orders", 'kind: csv, path: ["in/{day}/", "in"]')
    assert "source.path.0: expected no placeholder but {partition} or ${ENV_VAR}, found {day}" in complaint(refused)
    assert "source.path: expected a path" in complaint(job("orders", "kind: csv, path: []"))
