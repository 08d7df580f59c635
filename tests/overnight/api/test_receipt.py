"""The receipt's rows and its page, for each kind of file that a sink publishes."""

import gzip
import io
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import overnight
from overnight.api.statuses import Statuses
from overnight.flows.ledger.partition_status import PartitionStatus

ROWS = pa.table({"row_id": ["a#0", "a#1"], "n": [1, 2]})


def receipt_of(sink: dict[str, Any], files: list[str], **more: Any) -> overnight.Receipt:
    job = overnight.load({"name": "job", "source": {"kind": "csv", "path": "/in/{partition}"}, "sink": sink, **more})
    counts = dict.fromkeys(["rows_in", "rows_out", "rows_filtered", "rows_quarantined", "rows_resumed", "seconds"], 2)
    facts = {"job": "job", "partition": "2026-01-02", "status": "published", "generation": "g", "limit_rows": None}
    return overnight.Receipt({**facts, **counts, "rows_per_second": 1.0, "files": files, "table_version": 1}, job)


def parquet_receipt(folder: Path, table: pa.Table) -> overnight.Receipt:
    (folder / "date=2026-01-02").mkdir()
    pq.write_table(table, folder / "date=2026-01-02/part-0.parquet")
    return receipt_of({"kind": "parquet", "path": str(folder)}, ["date=2026-01-02/part-0.parquet"])


def test_its_keys_are_attributes_and_items(tmp_path: Path) -> None:
    receipt = receipt_of({"kind": "parquet", "path": str(tmp_path)}, [])
    assert receipt.rows_out == receipt["rows_out"] == dict(receipt)["rows_out"] == 2
    assert "rows_out" in dir(receipt)
    assert repr(receipt) == "Receipt(job/2026-01-02, published, rows_in=2, rows_out=2, rows_quarantined=2)"
    assert receipt.path == f"{tmp_path}/_overnight/date=2026-01-02/receipt.json"
    with pytest.raises(AttributeError, match=r"expected one of job, partition, .*, found rows"):
        _ = receipt.rows
    assert receipt.table().num_rows == receipt.head().num_rows == 0


def test_rows_of_parquet_files_keep_their_types(tmp_path: Path) -> None:
    receipt = parquet_receipt(tmp_path, ROWS)
    assert receipt.table().equals(ROWS)
    assert receipt.table(["n"]).equals(ROWS.select(["n"]))
    assert receipt.head(1).equals(ROWS.slice(0, 1))
    quarantine = tmp_path / "_overnight/date=2026-01-02/quarantine/quarantine-g.parquet"
    quarantine.parent.mkdir(parents=True)
    pq.write_table(pa.table({"row_id": ["b"]}), quarantine)
    assert receipt.quarantine()["row_id"].to_pylist() == ["b"]


def test_rows_of_text_files_and_of_a_lance_table_are_read(tmp_path: Path) -> None:
    written = b"row_id,n\na#0,1\na#1,2\n"
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(written))
    (tmp_path / "b.csv").write_bytes(written)
    (tmp_path / "c.jsonl").write_text('{"row_id": "a#0", "n": 1}\n{"row_id": "a#1", "n": 2}\n')
    sink = {"kind": "csv", "path": str(tmp_path)}
    assert receipt_of(sink, ["a.csv.gz", "b.csv"]).table().equals(pa.concat_tables([ROWS, ROWS]))
    assert receipt_of({**sink, "kind": "jsonl"}, ["c.jsonl"]).table().equals(ROWS)
    days = pa.array(["2026-01-02", "2026-01-03"]).cast(pa.date32())
    lance.write_dataset(ROWS.append_column("date", days), tmp_path / "table")
    receipt = receipt_of({"kind": "lance", "path": str(tmp_path / "table")}, ["data/x.lance"])
    assert receipt.table().to_pylist() == [{"row_id": "a#0", "n": 1}]


def test_the_head_has_as_many_rows_as_asked_for_from_several_files(tmp_path: Path) -> None:
    files = ["part-0.parquet", "part-1.parquet"]
    for file in files:
        pq.write_table(pa.table({"row_id": [f"{file}#{row}" for row in range(1_500)]}), tmp_path / file)
    receipt = receipt_of({"kind": "parquet", "path": str(tmp_path)}, files)
    assert receipt.head(2_000).equals(receipt.table().slice(0, 2_000))
    assert receipt.head(9_000).num_rows == 3_000


def test_rows_of_a_database_are_those_of_the_partition(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("create table t (date date, row_id text, n bigint)")
        rows = [("2026-01-02", "a#1", 2), ("2026-01-02", "a#0", 1), ("2026-01-03", "b#0", 3)]
        connection.executemany("insert into t values (?, ?, ?)", rows)
        connection.commit()
    sink = {"kind": "sql", "url": f"sqlite:///{tmp_path}/a.db", "table": "t"}
    receipt = receipt_of(sink, [], state=str(tmp_path))
    assert receipt.table().equals(ROWS)
    assert receipt.head(1).equals(ROWS.slice(0, 1))
    assert receipt.table(["n"]).equals(ROWS.select(["n"]))


def test_the_page_escapes_texts_and_shows_images(tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.fromarray(np.zeros((300, 200, 3), np.uint8)).save(content, "JPEG")
    rows = pa.table({"row_id": ["<b>", "\x1b[1m"], "image": [content.getvalue(), b"\xff\xd8\xff no image"]})
    page = parquet_receipt(tmp_path, rows)._repr_html_()
    assert "<td>&lt;b&gt;</td>" in page
    assert "<td>\\x1b[1m</td>" in page
    assert page.count("data:image/png;base64,") == 1
    assert "<td>12 bytes</td>" in page
    (tmp_path / "date=2026-01-02/part-0.parquet").unlink()
    missing = receipt_of({"kind": "parquet", "path": str(tmp_path)}, ["date=2026-01-02/part-0.parquet"])._repr_html_()
    assert "The rows cannot be shown" in missing


def test_the_page_of_statuses_has_the_newest_first() -> None:
    entries = [PartitionStatus(f"2026-01-0{day}", "failed", ("infer: a <b>",)) for day in (1, 2)]
    page = Statuses(entries, "job", "/a <b>/report.html")._repr_html_()
    assert page.index("2026-01-02") < page.index("2026-01-01")
    assert "infer: a &lt;b&gt;" in page
    assert "<code>/a &lt;b&gt;/report.html</code>" in page
