"""A publish that dies half-way is completed or taken back by the next run; nobody ever sees a mixture."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks import lease, settled, staging
from tasks.lease import LeaseLost
from tasks.run_directory import Run, read_json
from tasks.storage import Location
from tasks.write.parquet import ParquetSink
from tasks.write.publish import publish, repair

DYING = """
import os, pickle, signal, sys
from tasks.write.parquet import ParquetSink
from tasks.write.publish import publish

run, errors, receipt, moment = pickle.load(open(sys.argv[1], "rb"))

class Dies(ParquetSink):
    def switch(self, run, names):
        if moment == "after the switch":
            super().switch(run, names)
        os.kill(os.getpid(), signal.SIGKILL)

publish(run, Dies(path=run.sink.template), errors, receipt)
"""


def make_run(folder: Path, number: int, partition: str, token: int) -> Run:
    return Run(
        job="job",
        partition=partition,
        partition_column="date",
        state=Location(str(folder / "out/_overnight")),
        sink=Location(str(folder / "out")),
        generation=f"g{number}",
        attempt=f"2026-{number:06d}",
        fingerprint="f",
        ingredients={},
        started_at="2026-01-01T00:00:00Z",
        token=token,
    )


def staged(run: Run, values: list[int]) -> tuple[pa.Table, dict[str, Any]]:
    """Stages and prepares a part with these values; what `publish` takes besides."""
    numbers = list(range(len(values)))
    table = pa.table(
        {"row_id": [f"a#{n}" for n in numbers], "x": values, "__unit": [0] * len(values), "__row": numbers}
    )
    ranges = pa.table({"unit": [0], "start": [0], "stop": [len(values)], "state": [0]}, schema=settled.RANGES)
    staging.write_part(run.parts, "2026-000000", table, staging.QUARANTINE.empty_table(), ranges, {}, "zstd")
    records = staging.read_records(run.parts)
    names, *_ = ParquetSink(path=run.sink.template).prepare(run, records, settled.merge([r.ranges for r in records]))
    files = [f"{run.partition_directory}/{name}".lstrip("/") for name in names]
    return staging.QUARANTINE.empty_table(), {"job": "job", "generation": run.generation, "files": files}


def visible(folder: Path) -> list[int]:
    files = [p for p in (folder / "out").rglob("*.parquet") if not any(part[0] == "_" for part in p.parts)]
    return sorted(x for file in files for x in pq.ParquetFile(file).read()["x"].to_pylist())


@pytest.mark.parametrize("partition", ["2026-01-02", "all"])
@pytest.mark.parametrize("moment", ["before the switch", "after the switch"])
def test_a_publish_that_is_killed_is_put_right_by_the_next_run(
    ray_session: None, tmp_path: Path, moment: str, partition: str
) -> None:
    sink = ParquetSink(path=str(tmp_path / "out"))
    first = make_run(tmp_path, 1, partition, token=1)
    with lease.held(first.ledger, "first"):
        publish(first, sink, *staged(first, [1, 2, 3]))
    assert visible(tmp_path) == [1, 2, 3]

    second = make_run(tmp_path, 2, partition, token=2)
    with lease.held(first.ledger, "second"):
        errors, receipt = staged(second, [4, 5])
        (tmp_path / "state").write_bytes(pickle.dumps((second, errors, receipt, moment)))
        done = subprocess.run([sys.executable, "-c", DYING, str(tmp_path / "state")], check=False, timeout=60)
    assert done.returncode == -9
    third = make_run(tmp_path, 3, partition, token=3)
    said = repair(third, sink)
    newest = read_json(first.ledger / "receipt.json")
    assert newest is not None
    if moment == "after the switch":
        assert "completed" in str(said)
        assert (visible(tmp_path), newest["generation"]) == ([4, 5], "g2")
        assert not staging.read_records(second.parts)
    else:
        assert "took back" in str(said)
        assert (visible(tmp_path), newest["generation"]) == ([1, 2, 3], "g1")
        assert len(staging.read_records(second.parts)) == 1
    assert repair(third, sink) is None
    assert not list((tmp_path / "out").glob("_publishing*"))
    assert (
        json.loads(
            (tmp_path / "out/_overnight")
            .joinpath(f"date={partition}" if partition != "all" else "all", "receipt.json")
            .read_text()
        )
        == newest
    )


def test_a_zombie_cannot_publish(ray_session: None, tmp_path: Path) -> None:
    sink = ParquetSink(path=str(tmp_path / "out"))
    zombie = make_run(tmp_path, 1, "2026-01-02", token=1)
    work = staged(zombie, [1, 2, 3])
    with lease.held(zombie.ledger, "zombie"):
        pass
    with lease.held(zombie.ledger, "successor"), pytest.raises(LeaseLost, match="taken over"):
        publish(zombie, sink, *work)
    assert visible(tmp_path) == []
