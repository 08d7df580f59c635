"""The names of datasets in OpenLineage, by its naming rules, for each kind of place."""

from pathlib import Path
from typing import Any

import pytest

from overnight.flows.job.loading import load_job
from overnight.flows.notices.datasets import inputs_of, output_of, sql_of
from tests import jobs
from tests.flows.report.runs import job_of

PG = "postgresql+psycopg://me:${PW}@db.example.org:5432/sales"


@pytest.mark.parametrize(
    ("sink", "namespace", "name"),
    [
        ({"kind": "sql", "url": PG, "table": "orders"}, "postgres://db.example.org:5432", "sales.orders"),
        ({"kind": "sql", "url": "sqlite:////var/a.db", "table": "orders"}, "sqlite://", "var/a.db.orders"),
        ({"kind": "parquet", "path": "s3://bucket/predictions/"}, "s3://bucket", "predictions"),
        ({"kind": "delta", "path": "abfs://box@me.dfs.core.windows.net/t"}, "abfs://box@me.dfs.core.windows.net", "t"),
        ({"kind": "parquet", "path": "file:///data/out"}, "file", "/data/out"),
    ],
)
def test_a_sink_has_the_name_of_its_folder_or_table(
    tmp_path: Path, sink: dict[str, Any], namespace: str, name: str
) -> None:
    dataset = output_of(job_of(tmp_path, sink=sink, state=str(tmp_path / "state")), {})
    assert (dataset.namespace, dataset.name) == (namespace, name)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("s3://bucket/raw/date={partition}/photos/", ("s3://bucket", "raw")),
        ("gs://bucket/{partition}/", ("gs://bucket", "/")),
        ("/data/in/*.csv", ("file", "/data/in")),
        ("/data/${FOLDER}/in", ("file", "/data/north/in")),
    ],
)
def test_the_name_of_a_source_has_neither_partition_nor_pattern(
    tmp_path: Path, path: str, name: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDER", "north")
    [dataset] = inputs_of(job_of(tmp_path, source={"kind": "csv", "path": path}), None, {})
    assert (dataset.namespace, dataset.name) == name


def test_a_job_that_reads_another_one_reads_the_table_that_it_writes(tmp_path: Path) -> None:
    first = jobs.write_job(tmp_path / "first/job.yaml", name="first")
    second = jobs.write_job(tmp_path / "second/job.yaml", name="second", source={"kind": "job", "job": str(first)})
    written = output_of(load_job(first), {})
    [read] = inputs_of(load_job(second), None, {})
    assert (read.namespace, read.name) == (written.namespace, written.name)


def test_a_query_is_a_facet_and_its_database_the_dataset(tmp_path: Path) -> None:
    source = {"kind": "sql", "url": PG, "query": "SELECT id, text FROM reviews", "key": "id"}
    job = job_of(tmp_path, source=source)
    assert sql_of(job) == "SELECT id, text FROM reviews"
    [dataset] = inputs_of(job, None, {})
    assert (dataset.namespace, dataset.name) == ("postgres://db.example.org:5432", "sales")
