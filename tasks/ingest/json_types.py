"""Arrow types for the values of a JSON key, and columns of them that hold every value unchanged."""

import json
from collections import Counter
from typing import Any

import orjson
import pyarrow as pa

DEEPEST = 16
MISFIT = (pa.ArrowException, OverflowError, orjson.JSONEncodeError)


def inferred_type(values: list[Any]) -> pa.DataType | None:
    """The type of most of the values; None where all are null, or nested deeper than Parquet's readers go."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    families = Counter(map(_family, present))
    usual = [value for value in present if _family(value) is families.most_common(1)[0][0]]
    wide = pa.float64() if any(isinstance(value, float) for value in usual) else pa.uint64()
    for sample, kind in ((usual, None), (usual, wide), (usual[:1], None), (usual[:1], wide)):
        try:
            found = pa.array(sample, kind).type
            return None if _is_deeper(found, DEEPEST) else _without_nulls(found)
        except MISFIT:
            continue
    return pa.string()


def column_of(values: dict[int, Any], kind: pa.DataType | None) -> tuple[pa.Array, dict[int, str]]:
    """The values as a column, null where one does not fit, and why it does not. Without a type all become text."""
    try:
        return _strict(list(values.values()), kind), {}
    except MISFIT:
        misfits, cells = {}, []
    for i, value in values.items():
        try:
            cells.append(_strict([value], kind))
        except MISFIT:
            shown = json.dumps(value, ensure_ascii=False)[:200]
            misfits[i] = f"expected {kind or 'a value of fewer lists and objects in one another'}, found {shown}"
            cells.append(pa.nulls(1, kind or pa.string()))
    return pa.concat_arrays(cells), misfits


def _family(value: Any) -> type:
    return float if type(value) is int else type(value)


def _strict(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """As `pa.array`, but raising one of `MISFIT` where that would drop fractions or unknown keys in silence."""
    if kind is None:
        return pa.array([_text(value) for value in values], pa.string())
    if pa.types.is_nested(kind):
        fits = _holds(kind, pa.array(values).type)
    elif pa.types.is_integer(kind):
        fits = all(value is None or (_family(value) is float and value == int(value)) for value in values)
    else:
        families = {pa.float64(): float, pa.bool_(): bool, pa.string(): str}
        fits = set(map(_family, values)) <= {type(None), families.get(kind)}
    if not fits:
        raise pa.ArrowInvalid(f"not {kind}")
    return pa.array(values, kind)


def _holds(kind: pa.DataType, found: pa.DataType) -> bool:
    if pa.types.is_null(found) or kind == found:
        return True
    if pa.types.is_list(kind) and pa.types.is_list(found):
        return _holds(kind.value_type, found.value_type)
    if pa.types.is_struct(kind) and pa.types.is_struct(found):
        known = {field.name: field.type for field in kind}
        return all(field.name in known and _holds(known[field.name], field.type) for field in found)
    return bool(pa.types.is_floating(kind) and pa.types.is_integer(found))


def _without_nulls(kind: pa.DataType) -> pa.DataType:
    """The type with text in the place of values never seen."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_nulls(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_nulls(field.type)) for field in kind])
    return kind


def _is_deeper(kind: pa.DataType, levels: int) -> bool:
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return bool(inner) and (not levels or any(_is_deeper(found, levels - 1) for found in inner))


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()
