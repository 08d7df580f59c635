"""A partition of a job that reads another job is stale when the partition that it reads is, along a chain of jobs."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from overnight.flows.job.loading import load_job
from overnight.flows.ledger.partition_status import PartitionStatus, read_ledger
from tests.flows.ledger.published import publish
from tests.jobs import write_days, write_job

DAYS = ["2026-01-02", "2026-01-03"]


@pytest.fixture
def chain(tmp_path: Path) -> list[Path]:
    """The files of three published jobs: `a` reads days of files, `b` reads `a`, and `c` reads `b`."""
    write_days(tmp_path, DAYS)
    source = {"kind": "jsonl", "path": f"{tmp_path}/in/{{partition}}"}
    paths = []
    for name in "abc":
        sink = {"kind": "parquet", "path": f"{tmp_path}/{name}"}
        paths.append(write_job(tmp_path / f"{name}.yaml", name=name, source=source, sink=sink))
        source = {"kind": "job", "job": str(paths[-1])}
        publish_rows(paths[-1], "1.parquet")
    return paths


def publish_rows(path: Path, file: str) -> None:
    """Publish this file for each day."""
    for day in DAYS:
        folder = path.with_suffix("") / f"date={day}"
        folder.mkdir(parents=True, exist_ok=True)
        publish(load_job(path), day, files=[f"date={day}/{file}"])
        pq.write_table(pa.table({"x": [1, 2]}), folder / file)


def statuses(path: Path) -> list[PartitionStatus]:
    return read_ledger(load_job(path), inputs=True)[: len(DAYS)]


def test_inputs_that_changed_make_each_job_of_the_chain_stale_until_all_before_it_have_run(chain: list[Path]) -> None:
    for path in chain:
        assert [entry.status for entry in statuses(path)] == ["published", "published"]
    folder = chain[0].parent / "in" / DAYS[0]
    shutil.copy(folder / "a.jsonl", folder / "b.jsonl")
    for path in chain:
        assert [entry.status for entry in statuses(path)] == ["stale", "published"], path
    why = f"reads b/{DAYS[0]}, which is stale: reads a/{DAYS[0]}, which is stale: inputs changed: 1 new (b.jsonl)"
    assert statuses(chain[2])[0].why == (why,)
    for place, path in enumerate(chain):
        publish_rows(path, "2.parquet")
        assert [statuses(path)[0].status for path in chain] == ["published"] * (place + 1) + ["stale"] * (2 - place)


def test_settings_of_the_first_job_that_changed_make_the_last_one_stale(chain: list[Path]) -> None:
    step = {"kind": "derive_columns", "columns": {"y": "x"}}
    write_job(chain[0], yaml.safe_load(chain[0].read_text()) | {"preprocess": [step]})
    assert [entry.status for entry in statuses(chain[2])] == ["stale", "stale"]
