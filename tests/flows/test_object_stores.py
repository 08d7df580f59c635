"""A job that reads from Google's or Azure's store and publishes there, or reads from the hub, from the command line.

One process with a Ray of its own runs the commands: the session's workers may have started before the stores.
"""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from overnight.tasks.storage.location import Location
from tests.commands_on_one_ray import Run, commands_on_one_ray
from tests.hub import DATASET, hub

pytestmark = pytest.mark.slow
ROWS = 40
Told = Callable[..., Any]


@pytest.fixture(params=["google", "azure"])
def bucket(request: pytest.FixtureRequest) -> str:
    return f"{request.getfixturevalue(request.param)}/{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def hub_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the data set on the hub holds at the moment."""
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, google: str, prefect_api: str, hub_files: Path) -> Iterator[Run]:
    with contextlib.suppress(pytest.skip.Exception):
        request.getfixturevalue("azure")
    # The hub's library reads the address when it is imported.
    with hub(hub_files) as address, commands_on_one_ray(HF_ENDPOINT=address, PREFECT_API_URL=prefect_api) as run:
        yield run


@pytest.fixture
def told(run: Run, tmp_path: Path) -> Told:
    """What a command in the test's folder says with `--json`."""

    def told(*arguments: str, code: int = 0) -> Any:
        done = run((*arguments, "--json"), tmp_path)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    return told


def published(receipt: dict[str, Any], out: Location) -> list[int]:
    rows = []
    for name in receipt["files"]:
        with (out / name).open() as file:
            rows += pq.ParquetFile(file).read()["twice"].to_pylist()
    return sorted(rows)


def test_a_partition_is_read_from_and_published_to_a_store_and_resumed_there(
    bucket: str, tmp_path: Path, told: Told
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

    refused = told("run", "job.yaml", "--set", "checks.min_rows=1000", code=1)
    assert "checks.min_rows" in refused["error_message"]
    assert not list(out.files((".parquet",)))
    receipt = told("run", "job.yaml")
    assert receipt["rows_resumed"] == ROWS
    assert published(receipt, out) == [2 * x for x in range(ROWS)]
    assert sorted(file.path for file in out.files((".parquet",))) == sorted(receipt["files"])

    (source / "2.jsonl").write_bytes(json.dumps({"x": ROWS}).encode())
    (entry,) = told("status", "job.yaml", "--inputs")
    assert entry["status"] == "stale", entry
    receipt = told("run", "job.yaml", "--force")
    assert published(receipt, out) == [2 * x for x in range(ROWS + 1)]
    told("clean", "job.yaml", "--yes")
    assert published(receipt, out) == [2 * x for x in range(ROWS + 1)]
    assert sorted(file.path for file in out.files((".parquet",))) == sorted(receipt["files"])


def test_a_data_set_on_the_hub_is_read_and_stale_after_a_commit(hub_files: Path, tmp_path: Path, told: Told) -> None:
    out = tmp_path / "out"
    (hub_files / "a.jsonl").write_text("\n".join(json.dumps({"x": x}) for x in range(ROWS)))
    job = {
        "name": "hub",
        "source": {"kind": "jsonl", "path": f"hf://datasets/{DATASET}"},
        "preprocess": [{"kind": "derive_columns", "columns": {"twice": "x * 2"}}],
        "inference": [],
        "sink": {"kind": "parquet", "path": str(out)},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    receipt = told("run", "job.yaml")
    assert published(receipt, Location(str(out))) == [2 * x for x in range(ROWS)]
    (hub_files / "b.jsonl").write_text(json.dumps({"x": ROWS}))
    (entry,) = told("status", "job.yaml", "--inputs")
    assert entry["status"] == "stale", entry
