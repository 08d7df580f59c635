"""The published rows of another job, for each kind of sink, by its receipt."""

import json
import threading
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import InputError, JobError, ServiceUnavailable
from overnight.tasks.ingest.listing import upstream as upstreams
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.listing.upstream import Upstream
from overnight.tasks.ingest.sources.job import JobRows
from overnight.tasks.state.manifest import digest
from tests.tasks.ingest.conftest import read_all

DAY = "2026-01-02"
ROWS = pa.table(
    {
        "row_id": ["a.csv#0", "a.csv#1"],
        "uri": ["/in/a.csv", "/in/a.csv"],
        "source_row_id": ["7", "8"],
        "n": pa.array([1, 2], pa.int64()),
    }
)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream("orders", "orders.yaml", "parquet", str(tmp_path), f"{tmp_path}/_overnight", "date", is_dated=True)


def publish(upstream: Upstream, files: list[str], generation: str = "1", **more: Any) -> None:
    """Write the receipt of the day, as a publish does."""
    ledger = Path(upstream.state) / f"date={DAY}"
    (ledger / "receipts").mkdir(parents=True, exist_ok=True)
    receipt = {"job": upstream.name, "generation": generation, "files": files, **more}
    for path in (ledger / "receipt.json", ledger / f"receipts/{generation}.json"):
        path.write_text(json.dumps(receipt))


def write(upstream: Upstream, name: str, rows: pa.Table = ROWS) -> str:
    path = Path(upstream.sink) / f"date={DAY}" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.csv.write_csv(rows, path) if name.endswith(".csv") else pq.write_table(rows, path)
    return f"date={DAY}/{name}"


def source(upstream: Upstream) -> JobRows:
    return JobRows(job=upstream.job_file).reading(upstream)


def read(found: JobRows) -> list[dict[str, Any]]:
    pinned = found.at(found.snapshot(DAY))
    units = pinned.units(list_inputs(pinned, DAY))
    return list(read_all(pinned, units, pinned.common_schema(units, DAY)).good.values())


def test_the_rows_of_the_receipt_are_read_under_their_own_names(upstream: Upstream) -> None:
    upstream = replace(upstream, sink_kind="csv")
    name = write(upstream, "part-1.csv")
    write(upstream, "part-0.csv")  # no receipt names it
    publish(upstream, [name])
    assert [{**row, "source_row_id": str(row["source_row_id"])} for row in read(source(upstream))] == ROWS.to_pylist()
    publish(upstream, [write(upstream, "part-2.csv", pa.table({"row_id": ["7", "12"]}))], "2")
    found = read(source(upstream))
    assert [row["row_id"] for row in found] == ["7", "12"], "text, although its digits are a number"
    assert found[0]["uri"] == f"{upstream.sink}/date={DAY}/part-2.csv"


def test_the_partition_of_a_lance_table_is_read_in_the_version_of_the_receipt(upstream: Upstream) -> None:
    upstream = replace(upstream, sink_kind="lance")
    table = lance.write_dataset(ROWS.append_column("date", pa.array([date(2026, 1, 2)] * 2)), upstream.sink)
    mine = [f"data/{file.path}" for fragment in table.get_fragments() for file in fragment.data_files()]
    publish(upstream, mine, table_version=table.version)
    pinned = source(upstream)
    lance.write_dataset(ROWS.append_column("date", pa.array([date(2026, 1, 3)] * 2)), upstream.sink, mode="append")
    assert [(row["row_id"], row["n"]) for row in read(pinned)] == [("a.csv#0", 1), ("a.csv#1", 2)]
    assert "date" not in read(pinned)[0]


def test_a_manifest_keeps_its_publish_and_the_inputs_change_with_the_next_one(upstream: Upstream) -> None:
    first = write(upstream, "part-1.parquet")
    publish(upstream, [first])
    found = source(upstream)
    pinned = found.at(found.snapshot(DAY))
    before = digest(list_inputs(found, DAY))
    publish(upstream, [write(upstream, "part-2.parquet")], "2")
    assert [file.path for file in list_inputs(pinned, DAY)] == [first]
    assert digest(list_inputs(pinned, DAY)) == before != digest(list_inputs(found, DAY))


def test_a_partition_that_is_being_replaced_is_read_whole_once_it_is_published(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(upstream, [f"date={DAY}/part-1.parquet"])  # its file is gone already
    name = write(upstream, "part-2.parquet")
    ledger = Path(upstream.state) / f"date={DAY}"
    (ledger / "publishing.json").write_text("{}")
    timer = threading.Timer(0.3, publish, (upstream, [name], "2"))
    timer.start()
    assert [file.path for file in list_inputs(source(upstream), DAY)] == [name]
    timer.join()
    publish(upstream, [f"date={DAY}/part-1.parquet"])
    monkeypatch.setattr(upstreams, "LOOKS", replace(upstreams.LOOKS, max_tries=2))
    with pytest.raises(ServiceUnavailable, match="orders/2026-01-02 is being published at this moment"):
        list_inputs(source(upstream), DAY)
    (ledger / "publishing.json").unlink()
    with pytest.raises(InputError, match=r"that the receipt of orders/2026-01-02 lists, found one gone: .*part-1"):
        list_inputs(source(upstream), DAY)


def test_what_is_not_published_says_why_and_what_to_do(upstream: Upstream) -> None:
    expected = r"expected the partition 2026-01-02 of the job orders, found it not published"
    with pytest.raises(InputError, match=rf"{expected}\. Run it first: overnight run orders.yaml --partition"):
        list_inputs(source(upstream), DAY)
    ledger = Path(upstream.state) / f"date={DAY}"
    ledger.mkdir(parents=True)
    (ledger / "failure.json").write_text(json.dumps({"error_message": "no space left"}))
    assert source(upstream).lacking(DAY).endswith("not published; its latest attempt failed: no space left")
    publish(replace(upstream, name="another"), [])
    assert source(upstream).lacking(DAY)
    publish(upstream, [])
    assert source(upstream).lacking(DAY) == ""
    with pytest.raises(InputError, match=r"source\.job: expected files below the partition .*orders, found none"):
        list_inputs(source(upstream), DAY)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sink_kind": "sql"}, r"a sink of kind parquet, .* lance, found kind: sql in orders.yaml\. Read .* kind: sql"),
        ({"sink_kind": "images"}, r"found kind: images in orders\.yaml\.$"),
        ({"sink_kind": "csv", "compression": "zstd"}, "expected text files with compression none or gzip, found zstd"),
    ],
)
def test_a_sink_that_no_source_reads_is_refused(upstream: Upstream, change: dict[str, str], words: str) -> None:
    with pytest.raises(JobError, match=words):
        source(replace(upstream, **change))


def test_the_other_job_counts_by_its_name_and_not_by_the_place_of_its_file(upstream: Upstream) -> None:
    elsewhere = JobRows(job="/elsewhere/orders.yaml").reading(upstream)
    assert elsewhere.content_settings() == source(upstream).content_settings() == {"kind": "job", "job": "orders"}
