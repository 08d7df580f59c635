"""A run that fails half-way: the next takes up what was staged, and each row is there once.

tests/contracts/sources/test_resume.py shows for every kind of source which rows the next run reads.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from overnight.tasks.errors import OvernightError
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_quarantined, assert_settled, published
from tests.tasks.preprocess import pdfs, sounds, videos

ROWS = 48


def csv(place: Path) -> dict[str, Any]:
    for first in range(0, ROWS, 12):
        (place / f"{first}.csv").write_text("\n".join(["n", *map(str, range(first, first + 12))]) + "\n")
    return {"path": str(place)}


def images(place: Path) -> dict[str, Any]:
    for n in range(ROWS):
        Image.new("RGB", (8, 8), (n, n, n)).save(place / f"{n:04d}.png")
    return {"path": str(place)}


def sql(place: Path) -> dict[str, Any]:
    with sqlite3.connect(place / "data.db") as connection:
        connection.execute("CREATE TABLE numbers (n INTEGER)")
        connection.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(ROWS)])
    url = f"sqlite:///{place}/data.db"
    return {"url": url, "query": "SELECT n FROM numbers", "key": "n", "rows_per_unit": 12}


SOURCES = {"csv": csv, "images": images, "sql": sql}

MODEL = """
import time
from pathlib import Path

import numpy as np


class Half:
    def __init__(self, flag, out, refuses="nothing"):
        self.flag, self.out, self.refuses, self.seen = Path(flag), Path(out), refuses, 0

    def __call__(self, batch):
        rows = len(batch["row_id"])
        if any(name.startswith(self.refuses) for name in batch["row_id"]):
            raise ValueError("not this one")
        self.seen += rows
        if self.seen > 24 and self.flag.exists():
            while not any(self.out.glob("_overnight/*/generations/*/parts/*.part")):
                time.sleep(0.1)
            return {"seen": np.zeros(rows + 1)}  # no result at all: the run fails
        return {"seen": np.ones(rows)}
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOURCES)
def test_a_run_that_failed_half_way_is_taken_up_and_no_row_is_lost_or_doubled(
    kind: str, tmp_path: Path, run_job: RunJob
) -> None:
    place, out, flag = tmp_path / "in", tmp_path / "out", tmp_path / "fail"
    place.mkdir()
    flag.touch()
    (WORKER_PATH / "half_way.py").write_text(MODEL)
    asks = {"kind": "python", "target": "half_way:Half", "kwargs": {"flag": str(flag), "out": str(out)}}
    job: dict[str, Any] = {
        "name": f"half-{kind}",
        "source": {"kind": kind, **SOURCES[kind](place)},
        "inference": [{**asks, "batch_size": 4, "workers": 1}],
        "sink": {"kind": "parquet", "path": str(out), "rows_per_part": 4},
    }
    with pytest.raises(OvernightError, match="has 5 values for a batch of 4 rows"):
        run_job(job)
    flag.unlink()
    receipt = run_job(job)
    assert_settled(receipt, written=ROWS)
    assert 0 < receipt["rows_resumed"] < ROWS
    table = published(receipt, out)
    assert len(set(table["row_id"].to_pylist())) == len(table) == ROWS
    if kind == "images":
        assert sorted(table["row_id"].to_pylist()) == [f"{n:04d}.png" for n in range(ROWS)]
    else:
        assert sorted(table["n"].to_pylist()) == list(range(ROWS))


# What makes several rows of a file: a file of so many, and the steps.
MADE: dict[str, tuple[str, Callable[[int], bytes], list[dict[str, Any]]]] = {
    "pdf": (
        "pdf",
        lambda count: pdfs.pdf([[f"page {page}"] for page in range(count)]),
        [{"kind": "pdf_text"}, {"kind": "split_text", "size": 80, "overlap": 20}],
    ),
    "audio": (
        "wav",
        lambda count: sounds.wav(sounds.tone(count, 8_000), 8_000),
        [{"kind": "decode_audio", "chunk_seconds": 1}],
    ),
    "video": (
        "mp4",
        lambda count: videos.video(10 * count),
        [{"kind": "sample_frames", "every_seconds": 1}],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MADE)
def test_a_file_of_many_rows_is_there_with_all_of_them_or_quarantined_with_all(
    kind: str, tmp_path: Path, run_job: RunJob
) -> None:
    ending, content, steps = MADE[kind]
    place, out, flag = tmp_path / "in", tmp_path / "out", tmp_path / "fail"
    place.mkdir()
    flag.touch()
    rows = {f"{n:04d}.{ending}": n % 4 + 1 for n in range(24)}
    for name, count in rows.items():
        (place / name).write_bytes(content(count))
    (WORKER_PATH / "half_way.py").write_text(MODEL)
    refused = f"0007.{ending}"
    asks = {"flag": str(flag), "out": str(out), "refuses": f"{refused}#2"}
    job: dict[str, Any] = {
        "name": f"many-{kind}",
        "source": {"kind": kind, "path": str(place)},
        "preprocess": steps,
        "inference": [{"kind": "python", "target": "half_way:Half", "kwargs": asks, "batch_size": 4, "workers": 1}],
        "checks": {"max_quarantined": 1},
        "sink": {"kind": "parquet", "path": str(out), "rows_per_part": 4},
    }
    with pytest.raises(OvernightError, match="values for a batch of"):
        run_job(job)
    flag.unlink()
    receipt = run_job(job)
    assert_settled(receipt, written=23)
    assert 0 < receipt["rows_resumed"] < 24
    found = published(receipt, out)["row_id"].to_pylist()
    assert len(set(found)) == len(found)
    assert Counter(name.partition("#")[0] for name in found) == {n: c for n, c in rows.items() if n != refused}
    reason = rf"{refused}#2\S*: .*not this one \(half_way.py:\d+, in __call__\) \(1 of 4 rows made of this one failed\)"
    assert_quarantined(out, {refused: reason})
