"""Duplicates in whole jobs: the first row of the partition stays, exactly, whatever died or failed on the way."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import OvernightError
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_quarantined, assert_settled, published

CODE = '''
import os
import signal
import time
from pathlib import Path

import numpy as np


def spread(batch, folder):
    """Lists of n % 3 numbers, which repeat across rows; n 40 fails, and n 41 kills its process once."""
    if (batch["n"] == 40).any():
        raise ValueError("40 is refused")
    if (batch["n"] == 41).any() and (Path(folder) / "kill").exists():
        (Path(folder) / "kill").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"x": [[(int(n) * 7 + place * 11) % 300 for place in range(int(n) % 3)] for n in batch["n"]]}


class Circle:
    """Points on a circle, 200 of them; with the flag the run fails once a part is staged."""

    def __init__(self, folder):
        self.folder, self.seen = Path(folder), 0

    def __call__(self, batch):
        with open(self.folder / "seen", "a") as seen:
            seen.writelines(f"{name}\\n" for name in batch["row_id"])
        self.seen += len(batch["x"])
        if self.seen > 24 and (self.folder / "fail").exists():
            while not any((self.folder / "out").glob("_overnight/*/generations/*/parts/*.part")):
                time.sleep(0.1)
            return {"point": np.zeros(len(batch["x"]) + 1)}
        angles = 2 * np.pi * (batch["x"] % 200) / 200
        return {"point": np.stack([np.cos(angles), np.sin(angles)], axis=1)}
'''
TRIED = 2 * 8  # rows of the two runs' trials, whose duplicates are those among themselves
ROWS, FILES = 600, 3


def spread(n: int) -> list[int]:
    return [(n * 7 + place * 11) % 300 for place in range(n % 3)]


def write_numbers(folder: Path) -> None:
    (WORKER_PATH / "repeats.py").write_text(CODE)
    (folder / "in").mkdir()
    for file in range(FILES):
        rows = range(file * ROWS // FILES, (file + 1) * ROWS // FILES)
        table = pa.table({"n": pa.array(rows, (pa.int64(), pa.int32(), pa.float64())[file])})
        pq.write_table(table, folder / f"in/{file}.parquet", row_group_size=40)


def expected(rows: list[tuple[str, int]], key: Any) -> dict[str, int]:
    """Return the first of the rows (row_id, x), which are in manifest order, for each key."""
    first: dict[Any, str] = {}
    for row_id, x in rows:
        first.setdefault(key(x), row_id)
    return {row_id: x for row_id, x in rows if first[key(x)] == row_id}


@pytest.mark.slow
def test_a_model_sees_no_duplicate_and_the_first_rows_are_published_after_kills_and_a_failed_run(
    tmp_path: Path, run_job: RunJob
) -> None:
    write_numbers(tmp_path)
    job = {
        "name": "repeats",
        "source": {"kind": "parquet", "path": str(tmp_path / "in")},
        "shuffle": {"kind": "rows", "seed": 3},
        "preprocess": [
            {
                "kind": "python",
                "target": "repeats:spread",
                "kwargs": {"folder": str(tmp_path)},
                "explode": ["x"],
            },
            {"kind": "deduplicate", "columns": ["x"]},
        ],
        "inference": [
            {"kind": "python", "target": "repeats:Circle", "kwargs": {"folder": str(tmp_path)}, "batch_size": 8},
            {"kind": "deduplicate", "near": {"column": "point", "threshold": 0.9999}},
        ],
        "checks": {"max_quarantined": 0.1},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": 16},
    }
    made = [
        (f"{n * FILES // ROWS}.parquet#{n % (ROWS // FILES)}.{place}", x)
        for n in range(ROWS)
        if n != 40
        for place, x in enumerate(spread(n))
    ]
    distinct = expected(made, lambda x: x)
    wanted = expected(list(distinct.items()), lambda x: x % 200)
    for flag in ("kill", "fail"):
        (tmp_path / flag).touch()
    with pytest.raises(OvernightError, match="Return exactly one value per row"):
        run_job(job)
    assert not (tmp_path / "kill").exists()
    [decision] = (tmp_path / "out/_overnight/all/generations").glob("*/duplicates/0")
    assert list(decision.parents[1].glob("parts/*.part"))

    (tmp_path / "fail").unlink()
    receipt = run_job(job)
    rows = published(receipt, tmp_path / "out")
    assert dict(zip(rows["row_id"].to_pylist(), rows["x"].to_pylist(), strict=True)) == wanted
    seen = {*(tmp_path / "seen").read_text().split()}
    assert seen >= {*distinct}
    assert len(seen - {*distinct}) <= TRIED, "the model sees only first rows, except when it is tried"
    assert_quarantined(tmp_path / "out", {"0.parquet#40": "40 is refused"})
    assert_settled(receipt, len({row_id.rpartition(".")[0] for row_id in wanted}))
    assert receipt["rows_duplicate"] == len(made) - len(wanted)
    assert receipt["rows_resumed"] > 0
    readings = list(decision.parents[1].glob("attempts/*-keys0"))
    assert len(readings) == 1, "the second run has the decision of the first"
    assert not decision.exists(), "a published generation needs no decision"


def test_equal_rows_of_files_and_of_a_sample_are_published_once(tmp_path: Path, run_job: RunJob) -> None:
    (tmp_path / "in").mkdir()
    for name, text in {"a": "one", "b": "two", "c": "one", "d": "three", "e": "two"}.items():
        (tmp_path / f"in/{name}.txt").write_text(text)
    job = {
        "name": "texts",
        "source": {"kind": "text", "path": str(tmp_path / "in")},
        "inference": [{"kind": "deduplicate", "columns": ["text"]}],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    sample = run_job(job, limit_rows=3)
    assert [sample[name] for name in ("rows_in", "rows_out", "rows_filtered", "rows_duplicate")] == [3, 2, 1, 1]
    receipt = run_job(job)
    assert sorted(published(receipt, tmp_path / "out")["row_id"].to_pylist()) == ["a.txt", "b.txt", "d.txt"]
    assert [receipt[name] for name in ("rows_in", "rows_filtered", "rows_duplicate")] == [5, 2, 2]
    assert_settled(receipt)
