"""Hugging Face datasets as the library itself saves them."""

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets import Array2D, ClassLabel, Dataset, DatasetDict, Features, Image, List, Value

from overnight.tasks.ingest.sources.huggingface import HuggingFace
from tests.tasks.ingest.conftest import Read, overwritten, read_all

datasets.disable_progress_bars()
FEATURES = Features(
    {
        "n": Value("int64"), "text": Value("large_string"), "image": Image(), "label": ClassLabel(names=["a", "b"]),
        "grid": Array2D((2, 2), "float32"), "tags": List(Value("string")),
    }
)  # fmt: skip


def some(count: int) -> Dataset:
    columns = {
        "n": list(range(count)),
        "text": [f"row {n}" for n in range(count)],
        "image": [{"bytes": b"\x89PNG %d" % n, "path": None} for n in range(count)],
        "label": [n % 2 for n in range(count)],
        "grid": [[[n, 1], [2, 3]] for n in range(count)],
        "tags": [["x"] * (n % 3) for n in range(count)],
    }
    return Dataset.from_dict(columns, features=FEATURES)


def read(folder: Path, **settings: object) -> Read:
    return read_all(HuggingFace(path=str(folder), **settings))


def test_a_dataset_s_rows_come_in_plain_types_from_all_its_files(tmp_path: Path) -> None:
    some(10).save_to_disk(tmp_path, num_shards=3)
    found = read(tmp_path)
    assert list(found.good.values())[5] == {
        "row_id": "data-00001-of-00003.arrow#1",
        "uri": str(tmp_path / "data-00001-of-00003.arrow"),
        "n": 5, "text": "row 5", "image": b"\x89PNG 5", "label": 1, "grid": [[5, 1], [2, 3]], "tags": ["x", "x"],
    }  # fmt: skip
    assert found.column("n") == list(range(10))


def test_the_splits_of_a_dataset_are_folders(tmp_path: Path) -> None:
    DatasetDict({"train": some(4), "test": some(9).select([5, 2, 1])}).save_to_disk(tmp_path)
    found = read(tmp_path, columns=["n"])
    assert {name: row["n"] for name, row in found.good.items() if name.startswith("test")} == {
        f"test/data-00000-of-00001.arrow#{place}": n for place, n in enumerate([5, 2, 1])
    }
    assert len(found.good) == 7
    assert set(found.good.popitem()[1]) == {"row_id", "uri", "n"}


def test_what_the_library_keeps_beside_the_data_is_not_read(tmp_path: Path) -> None:
    some(4).save_to_disk(tmp_path)
    loaded = datasets.load_from_disk(str(tmp_path))
    loaded.cast_column("image", Image(decode=False)).map(lambda row: {"n": row["n"] + 100}).filter(
        lambda row: row["n"] > 101
    )
    assert len(list(tmp_path.glob("*.arrow"))) > 1
    assert read(tmp_path).column("n") == [0, 1, 2, 3]


def stream(columns: dict[str, Any], writer: Callable[..., Any] = pa.ipc.new_stream, batches: int = 1) -> bytes:
    """A file as `save_to_disk` writes it, or of Arrow's other format; the rows that many times."""
    table, buffer = pa.table(columns), io.BytesIO()
    with writer(buffer, table.schema) as opened:
        for _ in range(batches):
            opened.write_table(table)
    return buffer.getvalue()


TEXT = ["text"] * 100
WHOLE = stream({"n": range(100), "text": TEXT}, batches=3)
LATIN_1 = pa.Array.from_buffers(pa.string(), 1, pa.array([b"gr\xfcn"]).buffers())
BEGINS = "expected an Arrow stream as save_to_disk writes it, found a file that begins with "


def declaring(found: int, instead: int) -> bytes:
    """A stream of a batch of 100 rows, in whose header a number is another one."""
    content = stream({"n": range(100), "text": TEXT})
    assert struct.pack("<q", found) in content
    return content.replace(struct.pack("<q", found), struct.pack("<q", instead))


HOSTILE = {
    "empty.arrow": (b"", 0, BEGINS + "b''"),
    "other-format.arrow": (stream({"n": [1], "text": ["x"]}, pa.ipc.new_file), 0, BEGINS + "b'ARROW1"),
    "half.arrow": (WHOLE[: len(WHOLE) // 2], 100, "bytes for message body, got "),
    "cut.arrow": (WHOLE[:-8], 300, "expected the mark that ends an Arrow stream, found the end of the file"),
    "header-changed.arrow": (overwritten(WHOLE, -1800, -1750), 200, "Invalid flatbuffers message"),
    "offsets-changed.arrow": (overwritten(WHOLE, 1500, 1600), 0, "In column 1: Invalid: "),
    "latin-1.arrow": (stream({"n": [1], "text": LATIN_1}), 0, "In column 1: Invalid: Invalid UTF8 sequence"),
    "text-for-number.arrow": (stream({"n": ["x"], "text": ["x"]}), 0, "column n: expected int64, as in "),
    "list.arrow": (stream({"n": [[1]], "text": ["x"]}), 0, "found list<item: int64> in "),
    "rows.arrow": (declaring(100, 10**12), 0, "expected"),
    "negative-rows.arrow": (declaring(100, -1), 0, "expected"),
    "bytes.arrow": (declaring(800, 2**40), 0, "expected"),
    "fewer-bytes.arrow": (declaring(800, 8), 0, "expected"),
    "negative-bytes.arrow": (declaring(800, -8), 0, "expected"),
}
