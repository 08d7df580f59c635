"""Published JSON Lines and CSV: every value as it was, as far as the format can hold it."""

import csv
import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.write.sinks.csv import CsvSink
from overnight.tasks.write.sinks.jsonl import JsonlSink
from tests.contracts.sinks.publications import numbered, publish_parts, read_files

VECTORS = pa.FixedSizeListArray.from_arrays(pa.array(np.array([0.5, 0.25, 1, 2, 3, 4], np.float32)), 2)
COLUMNS: dict[str, Any] = {
    "text": ['a "quoted", line\nand another', "", None],
    "whole": pa.array([2**63 - 1, None, -1], pa.int64()),
    "real": [0.1, float("nan"), None],
    "truth": [True, None, False],
    "day": [date(2026, 1, 2), None, None],
    "moment": pa.array([datetime(2026, 1, 2, 3, 4, 5, 678, UTC), None, None], pa.timestamp("us", "UTC")),
    "nanoseconds": pa.array([1_000_000_001, None, None], pa.timestamp("ns")),
    "vector": VECTORS,
    "boxes": [[{"label": "cat", "box": [1, 2]}], [], None],
    "raw": [b"\x00\xff", None, b""],
    "price": [Decimal("1.50"), None, None],
    "class": pa.array(["a", "b", "a"]).dictionary_encode(),
}


def published(run: Any, files: list[str]) -> str:
    content = b"".join((run.sink / file).read_bytes() for file in files)
    return content.decode()


def test_a_row_of_json_lines_is_an_object_with_every_column(tmp_path: Path, ray_session: None) -> None:
    run = numbered(tmp_path, 1)
    files = publish_parts(run, JsonlSink(path="-"), COLUMNS)
    assert [file.rsplit(".")[-1] for file in files] == ["jsonl"]
    first, second, third = (json.loads(line) for line in published(run, files).splitlines())
    assert first == {
        "text": 'a "quoted", line\nand another', "whole": 2**63 - 1, "real": 0.1, "truth": True, "day": "2026-01-02",
        "moment": "2026-01-02T03:04:05.000678+00:00", "nanoseconds": "1970-01-01T00:00:01", "vector": [0.5, 0.25],
        "boxes": [{"label": "cat", "box": [1, 2]}], "raw": "AP8=", "price": "1.50", "class": "a", "row_id": "a#0",
    }  # fmt: skip
    assert (second["text"], second["real"], second["boxes"], second["raw"]) == ("", None, [], None)
    assert (third["text"], third["whole"], third["boxes"], third["raw"]) == (None, -1, None, "")


def test_a_row_of_csv_has_json_in_the_cells_of_nested_columns(tmp_path: Path, ray_session: None) -> None:
    run = numbered(tmp_path, 1)
    files = publish_parts(run, CsvSink(path="-"), COLUMNS)
    first, second, third = csv.DictReader(published(run, files).splitlines(keepends=True))
    assert (first["text"], first["whole"], first["real"], first["truth"]) == (
        'a "quoted", line\nand another', str(2**63 - 1), "0.1", "true",
    )  # fmt: skip
    assert json.loads(first["vector"]) == [0.5, 0.25]
    assert json.loads(first["boxes"]) == [{"label": "cat", "box": [1, 2]}]
    assert (first["day"], first["moment"]) == ("2026-01-02", "2026-01-02 03:04:05.000678Z")
    assert (first["raw"], first["price"], first["class"]) == ("AP8=", "1.50", "a")
    assert (second["real"], second["boxes"], third["boxes"]) == ("nan", "[]", "")
    lines = published(run, files).splitlines()
    assert lines[3].startswith('"",,')  # an empty text is no null
    assert lines[4].startswith(",-1,")


@pytest.mark.parametrize("leaf", [JsonlSink, CsvSink])
@pytest.mark.parametrize(("compression", "ending"), [("none", ""), ("gzip", ".gz"), ("zstd", ".zst")])
def test_files_are_compressed_as_their_names_say(
    leaf: Any, compression: str, ending: str, tmp_path: Path, ray_session: None
) -> None:
    sink = leaf(path="-", compression=compression, target_file_size=1)
    run = numbered(tmp_path, 1)
    files = publish_parts(run, sink, {"x": [1, 2]}, {"x": [3]})
    assert [file.endswith(f".{sink.kind}{ending}") for file in files] == [True, True]
    assert sorted(read_files(run.sink, files)["x"].to_pylist()) == [1, 2, 3]
    if ending == ".gz":
        assert gzip.decompress((run.sink / files[0]).read_bytes()).count(b"\n") >= 2


@pytest.mark.parametrize("leaf", [JsonlSink, CsvSink])
def test_a_partition_without_rows_has_no_files(leaf: Any, tmp_path: Path, ray_session: None) -> None:
    run = numbered(tmp_path, 1)
    assert publish_parts(run, leaf(path="-"), {"x": pa.array([], pa.int64())}) == []
