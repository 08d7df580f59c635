"""What a Delta table holds of what Arrow knows: written, committed and read back."""

import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.write.tables.delta_types import fitted


@pytest.mark.parametrize(
    ("ours", "table"),
    [(pa.int32(), pa.int64()), (pa.float32(), pa.float64()), (pa.list_(pa.int8()), pa.list_(pa.int32()))],
)
def test_a_narrower_type_is_published_as_the_table_s(ours: pa.DataType, table: pa.DataType):
    assert fitted(pa.schema([("x", ours), ("new", pa.int8())]), pa.schema([("x", table), ("old", pa.int8())])) == (
        pa.schema([("x", table), ("new", pa.int8())])
    )


@pytest.mark.parametrize(
    ("ours", "table"), [(pa.int64(), pa.int32()), (pa.string(), pa.int64()), (pa.list_(pa.int8()), pa.int8())]
)
def test_a_type_that_the_table_has_no_room_for_is_refused(ours: pa.DataType, table: pa.DataType):
    with pytest.raises(ContractError, match="column 'x'"):
        fitted(pa.schema([("x", ours)]), pa.schema([("x", table)]))
