"""Jobs over sources of every shape: a file of many rows, a table with versions, a database, a list of addresses."""

import io
import sqlite3
import tarfile
from datetime import date
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from PIL import Image

from overnight.tasks.errors import OvernightError
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, published, quarantine

MEDDLE = """
import lance


class Meddle:
    def __init__(self, table):  # is first made after the listing
        lance.dataset(table).delete("n % 3 = 0")

    def __call__(self, batch):
        return {}
"""


def picture(shade: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((4, 6, 3), shade, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def shards(place: Path) -> dict[str, Any]:
    """Two shards of six pictures, the second cut off in the fifth; the third picture of the first is none."""
    for shard in range(2):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for n in range(6):
                content = b"no picture" if (shard, n) == (0, 2) else picture(shard * 100 + n)
                member = tarfile.TarInfo(f"{n}.png")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        whole = buffer.getvalue()
        (place / f"{shard}.tar").write_bytes(whole if shard == 0 else whole[: 4 * 1024 + 600])
    return {"kind": "webdataset", "path": str(place), "columns": {"image": "jpg;png"}}


def addresses(place: Path) -> dict[str, Any]:
    """Pictures by their paths in a CSV file, one of them missing, another none."""
    for n in range(12):
        (place / f"{n}.png").write_bytes(picture(n) if n != 5 else b"no picture")
    (place / "3.png").unlink()
    lines = "".join(f"{n}.png,{n}\n" for n in range(12))
    (place / "list.csv").write_text("file,n\n" + lines)
    return {"kind": "uris", "path": f"{place}/list.csv", "content": "image", "uri_column": "file", "keep": ["n"]}


@pytest.mark.parametrize(
    ("lay_out", "rows", "bad"),
    [(shards, 9, {"0.tar#2", "1.tar#4"}), (addresses, 10, {"list.csv#3", "list.csv#5"})],
    ids=["webdataset", "uris"],
)
def test_pictures_in_shards_and_behind_addresses_are_decoded_and_the_broken_ones_told(
    tmp_path: Path, run_job: RunJob, lay_out: Any, rows: int, bad: set[str]
) -> None:
    (tmp_path / "in").mkdir()
    job: dict[str, Any] = {
        "name": "pictures",
        "source": lay_out(tmp_path / "in"),
        "preprocess": [{"kind": "resize_image", "size": 4}],
        "checks": {"max_quarantined": 0.5},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "keep_columns": ["image"]},
    }
    receipt = run_job(job)
    assert_settled(receipt, written=rows)
    assert {row["row_id"] for row in quarantine(tmp_path / "out", "all")} == bad
    table = published(receipt, tmp_path / "out")
    assert len(set(table["row_id"].to_pylist())) == len(table) == rows
    assert not set(table["row_id"].to_pylist()) & bad
    if job["source"]["kind"] == "uris":
        assert sorted(table["n"].to_pylist()) == [n for n in range(12) if n not in (3, 5)]


def test_a_day_of_a_database_is_published_by_key_and_taken_up_where_it_was_left(
    tmp_path: Path, run_job: RunJob
) -> None:
    with sqlite3.connect(tmp_path / "data.db") as connection:
        connection.execute("CREATE TABLE reviews (id INTEGER, day TEXT, stars INTEGER)")
        days = ["2026-01-01", "2026-01-02"]
        connection.executemany(
            "INSERT INTO reviews VALUES (?, ?, ?)", [(n * 7, days[n % 2], n % 5) for n in range(300)]
        )
    job: dict[str, Any] = {
        "name": "reviews",
        "source": {
            "kind": "sql", "url": f"sqlite:///{tmp_path}/data.db",
            "query": "SELECT * FROM reviews WHERE day = {partition}", "key": "id", "rows_per_unit": 20,
        },
        "preprocess": [{"kind": "derive_columns", "columns": {"good": "stars > 2"}}],
        "checks": {"min_rows": 1000},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }  # fmt: skip
    with pytest.raises(OvernightError, match="min_rows"):
        run_job(job, "2026-01-02")
    receipt = run_job({**job, "checks": {}}, "2026-01-02")
    assert_settled(receipt, written=150)
    assert receipt["rows_resumed"] == 150
    table = published(receipt, tmp_path / "out")
    expected = {str(n * 7): n % 5 > 2 for n in range(1, 300, 2)}
    assert dict(zip(table["row_id"].to_pylist(), table["good"].to_pylist(), strict=True)) == expected


def test_a_table_that_changes_while_it_is_read_is_read_as_it_was_listed(tmp_path: Path, run_job: RunJob) -> None:
    place = str(tmp_path / "table.lance")
    lance.write_dataset(pa.table({"n": range(40)}), place, max_rows_per_file=10)
    (WORKER_PATH / "meddling_reader.py").write_text(MEDDLE)
    job: dict[str, Any] = {
        "name": "versions",
        "source": {"kind": "lance", "path": place},
        "preprocess": [{"kind": "python", "target": "meddling_reader:Meddle", "kwargs": {"table": place}}],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    receipt = run_job(job)
    assert lance.dataset(place).count_rows() < 40
    assert_settled(receipt, written=40)
    assert sorted(published(receipt, tmp_path / "out")["n"].to_pylist()) == list(range(40))


def test_a_partition_of_a_delta_table_is_published_again_only_when_it_changed(tmp_path: Path, run_job: RunJob) -> None:
    place = str(tmp_path / "table")

    def add(first: int, count: int, day: int) -> None:
        columns = {"n": range(first, first + count), "day": [date(2026, 1, day)] * count}
        write_deltalake(place, pa.table(columns), partition_by=["day"], mode="append")

    add(0, 10, 1)
    add(100, 20, 2)
    job: dict[str, Any] = {
        "name": "table",
        "source": {"kind": "delta", "path": place, "where": {"day": "{partition}"}},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    receipt = run_job(job, "2026-01-01")
    assert_settled(receipt, written=10)
    add(200, 5, 2)
    assert run_job(job, "2026-01-01")["generation"] == receipt["generation"]
    add(300, 5, 1)
    again = run_job(job, "2026-01-01")
    assert again["generation"] != receipt["generation"]
    assert sorted(published(again, tmp_path / "out")["n"].to_pylist()) == [*range(10), *range(300, 305)]
