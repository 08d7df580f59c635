"""A partition of a job that reads another job is stale when the partition that it reads is, along a chain of jobs."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from overnight.flows.job.loading import load_job
from overnight.flows.ledger.partition_status import PartitionStatus, read_ledger
from overnight.flows.runs.run import describe_run
from overnight.tasks.ingest.task import stream_inputs
from overnight.tasks.state.manifest import digest
from overnight.tasks.state.run import write_json

DAYS = ["2026-01-02", "2026-01-03"]


@pytest.fixture
def jobs(tmp_path: Path) -> list[Path]:
    """The files of three published jobs: `a` reads days of Parquet files, `b` reads `a`, and `c` reads `b`."""
    for day in DAYS:
        write_rows(tmp_path / "in" / day / "1.parquet")
    source = {"kind": "parquet", "path": f"{tmp_path}/in/{{partition}}/"}
    paths = []
    for name in "abc":
        paths.append(tmp_path / f"{name}.yaml")
        sink = {"kind": "parquet", "path": str(tmp_path / name)}
        paths[-1].write_text(yaml.safe_dump({"name": name, "source": source, "sink": sink}))
        source = {"kind": "job", "job": str(paths[-1])}
        publish(paths[-1])
    return paths


def write_rows(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": [1, 2]}), path)


def publish(path: Path, generation: str = "1") -> None:
    """Write a file and a receipt for each day, as a run of the job would, but without its rows."""
    job = load_job(path)
    for day in DAYS:
        run = replace(describe_run(job, day), generation=generation)
        write_rows(Path(run.target.template) / f"{generation}.parquet")
        receipt = {
            "job": run.job, "partition": day, "generation": generation, "fingerprint": run.fingerprint,
            "ingredients": run.ingredients, "inputs": digest(stream_inputs(job.source, day)),
            "files": [f"date={day}/{generation}.parquet"],
        }  # fmt: skip
        write_json(run.ledger / "receipt.json", receipt)
        write_json(run.ledger / f"receipts/{generation}.json", receipt)


def statuses(path: Path) -> list[PartitionStatus]:
    return read_ledger(load_job(path), inputs=True)[: len(DAYS)]


def test_inputs_that_changed_make_each_job_of_the_chain_stale_until_all_before_it_have_run(jobs: list[Path]) -> None:
    for path in jobs:
        assert [entry.status for entry in statuses(path)] == ["published", "published"]
    write_rows(jobs[0].parent / "in" / DAYS[0] / "2.parquet")
    for path in jobs:
        assert [entry.status for entry in statuses(path)] == ["stale", "published"], path
    [first, _] = statuses(jobs[2])
    day = DAYS[0]
    assert first.why == (f"reads b/{day}, which is stale: reads a/{day}, which is stale: inputs changed",)
    for place, path in enumerate(jobs):
        publish(path, "2")
        assert [statuses(path)[0].status for path in jobs] == ["published"] * (place + 1) + ["stale"] * (2 - place)


def test_settings_of_the_first_job_that_changed_make_the_last_one_stale(jobs: list[Path]) -> None:
    step = {"kind": "derive_columns", "columns": {"y": "x"}}
    jobs[0].write_text(yaml.safe_dump(yaml.safe_load(jobs[0].read_text()) | {"preprocess": [step]}))
    assert [entry.status for entry in statuses(jobs[2])] == ["stale", "stale"]
