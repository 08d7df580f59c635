"""Values of published CSV and JSON Lines files in the types of their receipt. The sinks' contract has each type."""

import re

import pyarrow as pa
import pytest

from overnight.tasks.errors import InputError
from overnight.tasks.rows.published_text import carriers, published_types, restored


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
