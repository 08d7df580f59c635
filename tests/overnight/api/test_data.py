"""Data from memory, written as Parquet and read again as the source of a job reads it."""

import io
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import overnight
from overnight.api.data import place_data
from overnight.tasks.rows.tensors import to_numpy
from overnight.tasks.storage.location import Location

EXACT = pa.table(
    {
        "small": pa.array([1, None], pa.uint8()),
        "half": pa.array([np.float16(0.5), None], pa.float16()),
        "moment": pa.array([1, None], pa.timestamp("ns", "Europe/Berlin")),
        "money": pa.array([None, "1.10"], pa.string()).cast(pa.decimal128(10, 2)),
        "bytes": pa.array([b"\x00\xff", None], pa.large_binary()),
        "vector": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
        "nested": pa.array([{"a": [1]}, None], pa.struct([("a", pa.list_(pa.int32()))])),
    }
)


# Polars exports Categorical and Enum in this type.
CATEGORIES = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.uint8()), pa.array(["x"], pa.string_view()))


class Stream:
    """An object of another library, as Polars' DataFrame is one: all it has is its Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


class PolarsFrame:
    """The schema of a DataFrame of Polars, with a type that its Arrow stream has in no readable form."""

    def __init__(self, schema: dict[str, str]) -> None:
        self.schema = schema

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise NotImplementedError


PolarsFrame.__name__, PolarsFrame.__module__ = "DataFrame", "polars.dataframe.frame"


def placed(data: Any, folder: Path) -> pa.Table:
    digest = place_data(data, Location(str(folder)))
    return pq.ParquetFile(folder / digest / "data.parquet").read()


class UnregisteredTensor(pa.ExtensionType):
    """A tensor type of a library that did not register it with Arrow: an Arrow stream has only its storage."""

    def __init__(self) -> None:
        super().__init__(pa.list_(pa.float32()), "unregistered")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> "UnregisteredTensor":
        return cls()


@pytest.mark.parametrize(
    "convert",
    [lambda table: table, lambda table: table.to_reader(), Stream, lambda table: table.to_batches()[0]],
    ids=["table", "reader", "stream", "batch"],
)
def test_arrow_data_keeps_its_types_and_values(convert: Any, tmp_path: Path) -> None:
    assert placed(convert(EXACT), tmp_path).equals(EXACT)


def test_a_dataframe_keeps_its_columns_and_the_named_levels_of_its_index(tmp_path: Path) -> None:
    frame = pd.DataFrame({"n": np.array([1, 2], np.int16), "text": ["a", None], "at": pd.to_datetime([0, 1], unit="s")})
    assert placed(frame, tmp_path).column_names == ["n", "text", "at"]
    assert placed(frame, tmp_path)["n"].type == pa.int16()
    assert placed(frame[frame["n"] > 1], tmp_path).to_pylist()[0]["n"] == 2
    indexed = frame.set_index(pd.MultiIndex.from_arrays([["x", "y"], [3, 4]], names=["key", None]))
    assert placed(indexed, tmp_path).column_names == ["key", "n", "text", "at"]
    assert placed(indexed, tmp_path)["key"].to_pylist() == ["x", "y"]


def test_rows_keep_bytes_and_arrays_and_images_become_the_bytes_of_a_png_file(tmp_path: Path) -> None:
    picture = Image.fromarray(np.arange(24, dtype=np.uint8).reshape(2, 4, 3))
    arrays = [np.ones((2, 3), np.float32), np.zeros((1, 2), np.float32)]
    rows = [
        {"content": b"\x00", "array": arrays[0], "image": picture, "at": datetime(2026, 1, 2, tzinfo=UTC)},
        {"content": None, "array": arrays[1], "label": "b"},
    ]
    found = placed(rows, tmp_path)
    assert found["content"].to_pylist() == [b"\x00", None]
    assert found["label"].to_pylist() == [None, "b"]
    assert [np.array_equal(*pair) for pair in zip(to_numpy(found["array"]), arrays, strict=True)] == [True, True]
    shown = Image.open(io.BytesIO(found["image"][0].as_py()))
    assert (shown.format, np.array_equal(np.asarray(shown), np.asarray(picture))) == ("PNG", True)


def test_arrays_of_an_extension_type_become_plain_arrays(tmp_path: Path) -> None:
    arrays = np.arange(12, dtype=np.int32).reshape(2, 2, 3)
    table = pa.table({"image": pa.FixedShapeTensorArray.from_numpy_ndarray(arrays)})
    assert np.array_equal(to_numpy(placed(table, tmp_path)["image"]), arrays)
    lists = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32()))
    table = pa.table({"vector": pa.ExtensionArray.from_storage(UnregisteredTensor(), lists)})
    for data in (table, table.to_batches()[0]):
        assert np.array_equal(to_numpy(placed(data, tmp_path)["vector"]), [[1, 2], [3, 4]])


def test_many_rows_are_several_row_groups(tmp_path: Path) -> None:
    many = pa.table({"n": range(25_000)})
    digest = place_data(many.to_reader(max_chunksize=700), Location(str(tmp_path)))
    file = pq.ParquetFile(tmp_path / digest / "data.parquet")
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [10_000, 10_000, 5_000]
    assert file.read().equals(many)


def test_the_same_content_has_the_same_digest_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = Location(str(tmp_path))
    assert place_data(EXACT, folder) == place_data(Stream(EXACT), folder) != place_data(EXACT.slice(1), folder)
    assert len(list(tmp_path.iterdir())) == 2


def test_data_goes_to_a_store_of_objects_too(s3: Any) -> None:
    s3.create_bucket(Bucket="data-of-a-call")
    folder = Location("s3://data-of-a-call/state/data/all")
    digest = place_data(EXACT, folder)
    assert place_data(EXACT, folder) == digest
    assert folder.names() == [digest]
    with (folder / digest / "data.parquet").open() as file:
        assert pq.read_table(file).equals(EXACT)


def column(values: Any, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"a": pa.array(values, kind) if kind else values})


@pytest.mark.parametrize(
    ("data", "kind", "values"),
    [
        (column(CATEGORIES), pa.string(), ["x", None]),
        (column([["x"], None], pa.list_(pa.string_view())), pa.list_(pa.string()), [["x"], None]),
        (column([[1], None, [2, 3]], pa.list_view(pa.int8())), pa.list_(pa.int8()), [[1], None, [2, 3]]),
        (column([{"b": b"x"}], pa.struct([("b", pa.binary_view())])), pa.struct([("b", pa.binary())]), [{"b": b"x"}]),
        (column(pa.RunEndEncodedArray.from_arrays([2, 3], ["x", None])), pa.string(), ["x", "x", None]),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), pa.int64(), [0, 1]),
        (pd.DataFrame({"a": pd.Categorical([2, None])}), pa.int64(), [2, None]),
        ([{"a": UUID(int=1)}, {}], pa.string(), [str(UUID(int=1)), None]),
        ([{"a": {2, 1}}], pa.list_(pa.int64()), [[1, 2]]),
    ],
    ids=["categorical", "views", "list views", "struct", "run ends", "sparse", "categories", "uuid", "set"],
)
def test_a_type_that_parquet_lacks_becomes_the_plain_one(
    data: Any, kind: pa.DataType, values: list[Any], tmp_path: Path
) -> None:
    found = placed(data, tmp_path)["a"]
    assert (found.type, found.to_pylist()) == (kind, values)


MIXED = [date(2026, 1, 1), datetime(2026, 1, 1, 5)]
PERIODS = pd.period_range("2026-01", periods=1, freq="M")
TWICE = pa.table([[1], [2]], names=["a", "a"])


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (object(), "found object"),
        ([], "found none in list"),
        ([{}], "found none"),
        (pd.DataFrame({"a": []}), "found none in DataFrame"),
        (pd.DataFrame(index=[1]), "found none"),
        (EXACT.schema.empty_table().to_reader(), "found none"),
        ([1, 2], "found list of int"),
        ("rows.csv", "found str"),
        (type("LazyFrame", (), {"collect": None})(), r"Call collect\(\) first"),
        (pd.Series([1], name="a"), r"Call to_frame\(\) first"),
        (pd.DataFrame({"a": [1, "x"]}), "column a, found int and str"),
        ([{"a": 2**70}], "found int: Python int too large"),
        ([{"a": one} for one in MIXED], "'a': found dates and times without a zone"),
        ([{"a": MIXED}], "'a': found dates and times without a zone"),
        ([{"a": {"b": b"x"}}, {"a": {"b": "x"}}], "'a.b': found bytes and texts"),
        ([{"a": np.zeros(2)}, {"a": 1}], "'a': found arrays and numbers"),
        (pd.DataFrame({"a": [1j]}), "'a': found complex128 numbers"),
        (pd.DataFrame({"a": PERIODS}), r"'a': found period\[M\]"),
        (pd.DataFrame({"a": pd.cut([1, 5], 2)}), r"found pandas\.interval in the column a"),
        (pd.DataFrame({1: [1]}), "found 1"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "found a twice"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([1], name="a")), "index levels, found a twice"),
        (pd.DataFrame({"a": [1]}, index=pd.MultiIndex.from_arrays([[1], [2]], names=["k", "k"])), "found k twice"),
        (TWICE, "found a twice"),
        (TWICE.to_reader(), "found a twice"),
        ([{"\ud800": 1}], "UTF-8"),
        (column([None], pa.list_(pa.month_day_nano_interval())), "found month_day_nano_interval in the column a"),
        (column([{}], pa.struct([])), "found struct<> in the column a"),
        (PolarsFrame({"a": "Int64", "b": "List(Int128)"}), r"found List\(Int128\) in the column b"),
        (PolarsFrame({"a": "Struct({'Object': Int64})", "b": "Object"}), "found Object in the column b"),
    ],
)
def test_data_that_cannot_be_rows_is_refused_and_nothing_is_written(data: Any, fact: str, tmp_path: Path) -> None:
    with pytest.raises(overnight.JobError, match=fact):
        place_data(data, Location(str(tmp_path)))
    assert list(tmp_path.iterdir()) == []
