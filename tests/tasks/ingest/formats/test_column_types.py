"""Values that do not fit into the type of their column."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from overnight.tasks.ingest.formats.column_types import fitting


def test_a_value_that_does_not_fit_is_null_and_the_others_stay() -> None:
    column, misfits = fitting(pa.array(["7", "x", None]), lambda texts: pc.cast(texts, pa.int64()), pa.int64())
    assert (column.to_pylist(), misfits) == ([7, None, None], [1])


def test_a_lack_of_memory_is_no_misfit_of_a_value() -> None:
    def convert(texts: pa.Array) -> pa.Array:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    with pytest.raises(MemoryError):
        fitting(pa.array(["7"]), convert, pa.int64())
