"""A job that reads from Google's or Azure's store and publishes there, or reads from the hub, from the command line."""

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from overnight.tasks.storage.location import Location
from tests.chaos.runs import Process, started_runs
from tests.hub import DATASET, hub

pytestmark = pytest.mark.slow
ROWS = 40


@pytest.fixture(params=["google", "azure"])
def bucket(request: pytest.FixtureRequest) -> str:
    return f"{request.getfixturevalue(request.param)}/{uuid.uuid4().hex}"


def told(process: Process, code: int = 0) -> Any:
    """What a command says with `--json`."""
    stdout, stderr = process.communicate(timeout=200)
    assert process.returncode == code, stderr
    return json.loads(stdout)


def published(receipt: dict[str, Any], out: Location) -> list[int]:
    rows = []
    for name in receipt["files"]:
        with (out / name).open() as file:
            rows += pq.ParquetFile(file).read()["twice"].to_pylist()
    return sorted(rows)


def test_a_partition_is_read_from_and_published_to_a_store_and_resumed_there(
    bucket: str, tmp_path: Path, prefect_api: str
) -> None:
    source, out = Location(f"{bucket}/in"), Location(f"{bucket}/out")
    for part in range(2):
        lines = [json.dumps({"x": part * ROWS // 2 + i}) for i in range(ROWS // 2)]
        (source / f"{part}.jsonl").write_bytes("\n".join(lines).encode())
    job = {
        "name": "stored",
        "source": {"kind": "jsonl", "path": str(source)},
        "preprocess": [{"kind": "derive_columns", "columns": {"twice": "x * 2"}}],
        "inference": [],
        "sink": {"kind": "parquet", "path": str(out), "rows_per_part": 10},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))

    with started_runs(tmp_path, prefect_api) as start:
        refused = told(start("run", "job.yaml", "--set", "checks.min_rows=1000", "--json"), code=1)
        assert "checks.min_rows" in refused["error_message"]
        assert not list(out.files((".parquet",)))
        receipt = told(start("run", "job.yaml", "--json"))
        assert receipt["rows_resumed"] == ROWS
        assert published(receipt, out) == [2 * x for x in range(ROWS)]
        assert sorted(file.path for file in out.files((".parquet",))) == sorted(receipt["files"])

        (source / "2.jsonl").write_bytes(json.dumps({"x": ROWS}).encode())
        (entry,) = told(start("status", "job.yaml", "--inputs", "--json"))
        assert entry["status"] == "stale", entry
        receipt = told(start("run", "job.yaml", "--force", "--json"))
        assert published(receipt, out) == [2 * x for x in range(ROWS + 1)]
        told(start("clean", "job.yaml", "--yes", "--json"))
        assert published(receipt, out) == [2 * x for x in range(ROWS + 1)]
        assert sorted(file.path for file in out.files((".parquet",))) == sorted(receipt["files"])


def test_a_data_set_on_the_hub_is_read_and_stale_after_a_commit(tmp_path: Path, prefect_api: str) -> None:
    files, out = tmp_path / "hub", tmp_path / "out"
    files.mkdir()
    (files / "a.jsonl").write_text("\n".join(json.dumps({"x": x}) for x in range(ROWS)))
    job = {
        "name": "hub",
        "source": {"kind": "jsonl", "path": f"hf://datasets/{DATASET}"},
        "preprocess": [{"kind": "derive_columns", "columns": {"twice": "x * 2"}}],
        "inference": [],
        "sink": {"kind": "parquet", "path": str(out)},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    with hub(files) as address, started_runs(tmp_path, prefect_api) as start:
        # Its library reads the address when it is imported, so the tests' fork server has another one.
        at_the_hub = {"HF_ENDPOINT": address, "OVERNIGHT_FORK_SERVER": ""}
        receipt = told(start("run", "job.yaml", "--json", **at_the_hub))
        assert published(receipt, Location(str(out))) == [2 * x for x in range(ROWS)]
        (files / "b.jsonl").write_text(json.dumps({"x": ROWS}))
        (entry,) = told(start("status", "job.yaml", "--inputs", "--json", **at_the_hub))
        assert entry["status"] == "stale", entry
