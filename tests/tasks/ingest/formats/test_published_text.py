"""Values of published CSV and JSON Lines files in the types of their receipt."""

import base64
import re
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.formats.published_text import as_written, carriers, published_types, restored

# The type that is published, the value in the file, and the value that was published.
VALUES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.string(), "02116", "02116"),
    (pa.binary(), base64.b64encode(b"\xff\0").decode(), b"\xff\0"),
    (pa.binary(2), base64.b64encode(b"\xff\0").decode(), b"\xff\0"),
    (pa.decimal128(20, 3), "12345678901234567.890", Decimal("12345678901234567.890")),
    (pa.decimal256(60, 0), "9" * 60, Decimal("9" * 60)),
    (pa.timestamp("ns", "Europe/Berlin"), "2024-07-01T02:00:00.000000001+02:00", 1719792000000000001),
    (pa.timestamp("s"), "2024-07-01T00:00:00.000000", 1719792000),
    (pa.timestamp("s"), "1677-01-01T00:00:00", -9246096000),
    (pa.time32("ms"), "23:59:59.001", time(23, 59, 59, 1000)),
    (pa.time64("us"), "00:00:00.086399", time(0, 0, 0, 86399)),
    (pa.date32(), "2024-02-29", date(2024, 2, 29)),
    (pa.duration("ms"), 1500, timedelta(seconds=1.5)),
    (pa.float32(), 0.1, pa.scalar(0.1, pa.float32()).as_py()),
    (pa.int8(), -128, -128),
    (pa.uint64(), 2**64 - 1, 2**64 - 1),
    (pa.bool_(), True, True),
]


@pytest.mark.parametrize("sink", ["csv", "jsonl"])
@pytest.mark.parametrize(("kind", "written", "value"), VALUES, ids=[str(kind) for kind, *_ in VALUES])
def test_a_value_has_its_published_type_and_no_digit_less(
    sink: str, kind: pa.DataType, written: Any, value: Any
) -> None:
    kinds = published_types({"columns": {"a": {"type": str(kind)}}})
    assert kinds["a"] == kind
    schema = as_written(pa.schema([("a", pa.null())]), kinds, sink)
    text = str(written).lower() if isinstance(written, bool) else str(written)
    column = [None, text if schema.field("a").type == pa.string() else written]
    found = restored(pa.table({"a": column}, schema), kinds)["a"]
    assert found.type == kind
    numbers = found.cast(pa.int64()) if pa.types.is_timestamp(kind) else found
    assert numbers.to_pylist() == [None, value]


def test_columns_with_inner_types_and_columns_of_no_receipt_stay_as_the_file_has_them() -> None:
    kinds = published_types({"columns": {"tags": {"type": "list<element: string>"}, "gone": {"type": "null"}}})
    assert kinds == {"row_id": pa.string()}
    table = pa.table({"tags": [["a"]], "n": [1]})
    assert restored(table, kinds).equals(table)
    assert set(carriers({**kinds, "n": pa.int8()}, "csv").values()) == {"string"}


@pytest.mark.parametrize(("kind", "text"), [(pa.int8(), "300"), (pa.date32(), "soon"), (pa.binary(), "a")])
def test_a_value_that_was_not_published_is_refused_with_its_column(kind: pa.DataType, text: str) -> None:
    with pytest.raises(InputError, match=f"'a'.*{re.escape(str(kind))}"):
        restored(pa.table({"a": [text]}), {"a": kind})
