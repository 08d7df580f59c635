"""Arrow types in a Delta table. Types that Delta lacks are published as its nearest types.

    uint8, uint16, uint32                     short, integer, long: the next larger signed one
    uint64                                    decimal(20, 0)
    float16                                   float
    fixed-size lists (embeddings), list views  array
    timestamps of any unit or zone            timestamp: microseconds, UTC; those without a zone count as UTC, and rows
                                              with a finer time are quarantined
    date64                                    date
    time32, time64                            string, as 13:45:00
    duration                                  long, in its own unit
    dictionary                                the type of its values
    large and view strings and binaries       string, binary; fixed-size binary too
    decimal32, decimal64, decimal256          decimal, up to 38 digits
    extension types                           their storage type
    null (no value in any row)                left out, until a run gives the column a type

Intervals, unions and longer decimals are refused. Types of both Parquet and Delta stay unchanged.
"""

import pyarrow as pa
from pyarrow import types

from overnight.tasks.errors import ContractError
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
    """Return `schema` with each column's type replaced by the nearest type of Delta.

    Columns and struct fields of type null, or of lists of null, are left out, because no row has a value in them. Raise
    `ContractError` for a type that Delta cannot represent.
    """
    return pa.schema([(field.name, delta_type(field.name, field.type)) for field in of_known_types(schema)])


def fitted(schema: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Return the columns of `schema`, but with the type that `table` has for a column of the same name.

    Both schemas have Delta's types. Raise `ContractError` if the type in the table cannot hold all values of the run's
    type.
    """
    known = {field.name: field.type for field in table}
    for place, field in enumerate(schema):
        wanted = known.get(field.name, field.type)
        if not _has_room(wanted, field.type):
            raise ContractError(
                f"column {field.name!r} is {wanted} in the table and {field.type} in this run. "
                "Publish it under another name, or to another sink.path.",
                "write",
            )
        schema = schema.set(place, pa.field(field.name, wanted))
    return schema


def delta_type(name: str, kind: pa.DataType) -> pa.DataType:
    """Return Delta's type that is nearest to `kind`, which may be nested.

    Raise `ContractError` if Delta has no such type; `name` is the column's name in the message.
    """
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
    if _is_list(kind):
        return pa.list_(delta_type(name, kind.value_type))
    raise ContractError(f"column {name!r}: a Delta table cannot store {kind}. Return another type.", "write")


def _has_room(wanted: pa.DataType, kind: pa.DataType) -> bool:
    try:
        return wanted == kind or unified("", wanted, kind) == wanted
    except ContractError:
        return False


def _is_list(kind: pa.DataType) -> bool:
    several = (
        types.is_list,
        types.is_large_list,
        types.is_fixed_size_list,
        types.is_list_view,
        types.is_large_list_view,
    )
    return any(is_one(kind) for is_one in several)
