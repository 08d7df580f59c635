"""Arrow types in a Delta table. Types that Delta lacks are published as its nearest types.

Unsigned integers become the next larger signed type, uint64 decimal(20, 0). Timestamps become microseconds in UTC,
times text such as 13:45:00, and durations whole numbers in their own unit. A column of type null is left out, until a
run gives it a type. Intervals, unions and decimals of more than 38 digits are refused.
"""

import pyarrow as pa
from pyarrow import types

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.arrow_types import is_list
from overnight.tasks.write.merge.known_types import of_known_types
from overnight.tasks.write.merge.output_schema import unified

NEAREST = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
HELD = {pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32()}
HELD |= {pa.string(), pa.binary()}


def delta_schema(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with the nearest types of Delta, without columns and struct fields of type null.

    Raise `ContractError` for a type that Delta cannot represent.
    """
    return pa.schema([(field.name, delta_type(field.name, field.type)) for field in of_known_types(schema)])


def fitted(schema: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Return the columns of `schema`, but with the type that `table` has for a column of the same name.

    Raise `ContractError` if the type in the table cannot hold all values of the run's type.
    """
    kinds = {field.name: field.type for field in table}
    for number, field in enumerate(schema):
        kind = kinds.get(field.name, field.type)
        if not _has_room(kind, field.type):
            raise ContractError(
                f"column {field.name!r} is {kind} in the table and {field.type} in this run. "
                "Publish it under another name, or to another sink.path.",
                "write",
            )
        schema = schema.set(number, pa.field(field.name, kind))
    return schema


def delta_type(name: str, kind: pa.DataType) -> pa.DataType:
    """Return Delta's type that is nearest to the type `kind` of the column `name`, also inside of nested types."""
    if kind in HELD or types.is_decimal128(kind):
        return kind
    if kind in NEAREST:
        return NEAREST[kind]
    if isinstance(kind, pa.BaseExtensionType):
        return delta_type(name, kind.storage_type)
    if types.is_dictionary(kind):
        return delta_type(name, kind.value_type)
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if types.is_time(kind):
        return pa.string()
    if types.is_duration(kind):
        return pa.int64()
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_map(kind):
        return pa.map_(delta_type(name, kind.key_type), delta_type(name, kind.item_type))
    if types.is_struct(kind):
        return pa.struct([(field.name, delta_type(f"{name}.{field.name}", field.type)) for field in kind])
    if is_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(delta_type(name, kind.value_type))
    raise ContractError(f"column {name!r}: a Delta table cannot store {kind}. Return another type.", "write")


def _has_room(wide: pa.DataType, kind: pa.DataType) -> bool:
    try:
        return wide == kind or unified("", wide, kind) == wide
    except ContractError:
        return False
