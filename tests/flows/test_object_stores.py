"""A job that reads from an object store and publishes there, from the command line.

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

from overnight.tasks.storage.location import Location
from overnight.tasks.storage.stores import use
from tests import jobs
from tests.commands_on_one_ray import Run, commands_on_one_ray
from tests.two_stores import TwoStores, two_stores

pytestmark = pytest.mark.slow
ROWS = 40
DOUBLING = """
class Doubling:
    def __init__(self, weights):
        pass

    def __call__(self, batch):
        return {"twice": batch["x"] * 2}
"""
Printed = Callable[..., Any]


@pytest.fixture(params=["s3", "google", "azure"])
def bucket(request: pytest.FixtureRequest) -> str:
    store, name = request.getfixturevalue(request.param), uuid.uuid4().hex
    if request.param != "s3":
        return f"{store}/{name}"
    store.create_bucket(Bucket=name)
    return f"s3://{name}"


@pytest.fixture(scope="module")
def stores(s3: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoStores]:
    """Two servers with keys of their own, whose profiles the workers have in their environment."""
    with two_stores(tmp_path_factory.mktemp("stores")) as stores:
        yield stores


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, s3: Any, google: str, stores: TwoStores, prefect_api: str) -> Iterator[Run]:
    with contextlib.suppress(pytest.skip.Exception):
        request.getfixturevalue("azure")
    with commands_on_one_ray(PREFECT_API_URL=prefect_api) as run:
        yield run


@pytest.fixture
def printed(run: Run, tmp_path: Path) -> Printed:
    """What a command in the test's folder prints with `--json`."""

    def printed(*arguments: str, code: int = 0) -> Any:
        done = run((*arguments, "--json"), tmp_path)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    return printed


def lines(numbers: range) -> bytes:
    return "\n".join(json.dumps({"x": x}) for x in numbers).encode()


def published(receipt: dict[str, Any], out: Location) -> list[int]:
    rows = []
    for name in receipt["files"]:
        with (out / name).open() as file:
            rows += pq.ParquetFile(file).read()["twice"].to_pylist()
    return sorted(rows)


def test_a_partition_is_read_from_and_published_to_a_store_and_resumed_there(
    bucket: str, tmp_path: Path, printed: Printed
) -> None:
    source, out = Location(f"{bucket}/in"), Location(f"{bucket}/out")
    for part in range(2):
        (source / f"{part}.jsonl").write_bytes(lines(range(part * ROWS // 2, (part + 1) * ROWS // 2)))
    sink = {"kind": "parquet", "path": str(out), "rows_per_part": 10}
    reads = {"kind": "jsonl", "path": str(source)}
    doubled = {"kind": "derive_columns", "columns": {"twice": "x * 2"}}
    jobs.write_job(tmp_path / "job.yaml", source=reads, preprocess=[doubled], sink=sink)

    refused = printed("run", "job.yaml", "--set", "checks.min_rows=1000", code=1)
    assert "checks.min_rows" in refused["error_message"]
    assert not list(out.files((".parquet",)))
    receipt = printed("run", "job.yaml")
    assert receipt["rows_resumed"] == ROWS
    assert published(receipt, out) == [2 * x for x in range(ROWS)]
    assert sorted(file.path for file in out.files((".parquet",))) == sorted(receipt["files"])

    (source / "2.jsonl").write_bytes(lines(range(ROWS, ROWS + 1)))
    (entry,) = printed("status", "job.yaml", "--inputs")
    assert entry["status"] == "stale", entry
    receipt = printed("run", "job.yaml")
    printed("clean", "job.yaml", "--yes")
    assert published(receipt, out) == [2 * x for x in range(ROWS + 1)]
    assert sorted(file.path for file in out.files((".parquet",))) == sorted(receipt["files"])


def test_a_job_reads_from_one_server_and_publishes_to_another_with_a_profile_each(
    stores: TwoStores, tmp_path: Path, run: Run, printed: Printed
) -> None:
    use(stores.stores)
    source, out = Location(f"{stores.raw}/in"), Location(f"{stores.out}/out")
    for part in range(2):
        (source / f"{part}.jsonl").write_bytes(lines(range(part * ROWS // 2, (part + 1) * ROWS // 2)))
    (Location(stores.raw) / "model/factor.txt").write_bytes(b"2")
    model = {"kind": "python", "target": "doubling:Doubling", "kwargs": {"weights": f"{stores.raw}/model/factor.txt"}}
    (tmp_path / "doubling.py").write_text(DOUBLING)
    jobs.write_job(
        tmp_path / "job.yaml",
        source={"kind": "jsonl", "path": str(source)},
        inference=[model],
        sink={"kind": "parquet", "path": str(out), "rows_per_part": 10},
        storage=stores.settings,
    )
    receipt = printed("run", "job.yaml")
    assert published(receipt, out) == [2 * x for x in range(ROWS)]
    assert receipt["settings"]["storage"] == stores.settings
    assert printed("status", "job.yaml")[0]["status"] == "published"
    rows = run(("show", "job.yaml", "-n", "3", "--json"), tmp_path).stdout.splitlines()
    assert {json.loads(row)["uri"] for row in rows} <= {f"{source}/{part}.jsonl" for part in range(2)}
    state = [file for file in Location(f"{out}/_overnight").listed() if file.size < 10**6]
    assert state
    assert not any(b"raw-key" in Location(file.uri).read_bytes() for file in state)
    use({})
