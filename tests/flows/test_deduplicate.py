"""Duplicates in whole jobs: the first row of the partition stays, exactly, whatever failed on the way.

tests/chaos/test_kills.py kills the runs of a job that drops duplicates before its model and behind it.
"""

from pathlib import Path

import pytest

from overnight.tasks.errors import OvernightError
from tests import jobs
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_quarantined, assert_settled, parquet, published, write_parquet

CODE = '''
import time
from pathlib import Path

import numpy as np


def spread(batch):
    """Lists of n % 3 numbers, which repeat across rows; n 40 fails."""
    if (batch["n"] == 40).any():
        raise ValueError("40 is refused")
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
MADE = [
    (f"{n * FILES // ROWS}.parquet#{n % (ROWS // FILES)}.{place}", (n * 7 + place * 11) % 300)
    for n in range(ROWS)
    if n != 40
    for place in range(n % 3)
]
# In manifest order the first row of each x, and of those the first of each point.
DISTINCT = {row_id: x for x, row_id in {x: row_id for row_id, x in reversed(MADE)}.items()}
POINTS = {x % 200: row_id for row_id, x in reversed(MADE) if row_id in DISTINCT}
WANTED = {row_id: DISTINCT[row_id] for row_id in POINTS.values()}


@pytest.mark.slow
def test_a_model_sees_no_duplicate_and_a_run_after_a_failed_one_publishes_the_first_rows_by_the_same_decision(
    tmp_path: Path, run_job: RunJob
) -> None:
    (WORKER_PATH / "repeats.py").write_text(CODE)
    for file in range(FILES):
        write_parquet(tmp_path / f"in/{file}.parquet", n=range(file * ROWS // FILES, (file + 1) * ROWS // FILES))
    circle = {"kind": "python", "target": "repeats:Circle", "kwargs": {"folder": str(tmp_path)}, "batch_size": 8}
    job = jobs.job(
        tmp_path,
        source=parquet(tmp_path),
        shuffle={"kind": "rows", "seed": 3},
        preprocess=[
            {"kind": "python", "target": "repeats:spread", "explode": ["x"]},
            {"kind": "deduplicate", "columns": ["x"]},
        ],
        inference=[circle, {"kind": "deduplicate", "near": {"column": "point", "threshold": 0.9999}}],
        checks={"max_quarantined": 0.1},
        sink={"kind": "parquet", "path": f"{tmp_path}/out", "rows_per_part": 16},
    )
    (tmp_path / "fail").touch()
    with pytest.raises(OvernightError, match="one value per row"):
        run_job(job)
    [decision] = (tmp_path / "out/_overnight/all/generations").glob("*/duplicates/0")
    (tmp_path / "fail").unlink()
    receipt = run_job(job)

    rows = published(receipt, tmp_path / "out")
    assert dict(zip(rows["row_id"].to_pylist(), rows["x"].to_pylist(), strict=True)) == WANTED
    seen = {*(tmp_path / "seen").read_text().split()}
    assert seen >= {*DISTINCT}
    assert len(seen - {*DISTINCT}) <= TRIED, "the model sees only first rows, except when it is tried"
    assert_quarantined(tmp_path / "out", {"0.parquet#40": "40 is refused"})
    assert_settled(receipt, len({row_id.rpartition(".")[0] for row_id in WANTED}))
    assert receipt["rows_duplicate"] == len(MADE) - len(WANTED)
    assert receipt["rows_resumed"] > 0
    readings = list(decision.parents[1].glob("attempts/*-keys0"))
    assert len(readings) == 1, "the second run has the decision of the first"
    assert not decision.exists(), "a published generation needs no decision"


def test_equal_rows_of_files_and_of_a_sample_are_published_once(tmp_path: Path, run_job: RunJob) -> None:
    (tmp_path / "in").mkdir()
    for name, text in {"a": "one", "b": "two", "c": "one", "d": "three", "e": "two"}.items():
        (tmp_path / f"in/{name}.txt").write_text(text)
    source = {"kind": "text", "path": f"{tmp_path}/in"}
    job = jobs.job(tmp_path, source=source, inference=[{"kind": "deduplicate", "columns": ["text"]}])
    counts = ("rows_in", "rows_out", "rows_filtered", "rows_duplicate")
    assert [run_job(job, limit_rows=3)[name] for name in counts] == [3, 2, 1, 1]
    receipt = run_job(job)
    assert sorted(published(receipt, tmp_path / "out")["row_id"].to_pylist()) == ["a.txt", "b.txt", "d.txt"]
    assert [receipt[name] for name in counts] == [5, 3, 2, 2]
