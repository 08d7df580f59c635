"""The types that a trial showed, for batches whose values show less: an empty list, a missing field, only nulls."""

import numpy as np
import pyarrow as pa
from pyarrow import types

from overnight.tasks.rows.arrow_types import is_list
from overnight.tasks.rows.tensors import TENSOR, Column, to_arrow


def as_declared(values: Column, kind: pa.DataType) -> Column:
    """Return the values with the type `kind` if theirs lacks only fields or inner types; otherwise unchanged.

    No value changes: numbers of another type keep it.
    """
    if (isinstance(values, np.ndarray) and values.dtype != object) or kind == TENSOR:
        return values
    try:
        found = to_arrow(values)
        return found.cast(kind) if found.type != kind and _lacks(found.type, kind) else found
    except Exception:  # the caller converts it as well, and finds the cause
        return values


def _lacks(found: pa.DataType, kind: pa.DataType) -> bool:
    """Return True if `kind` is `found` with types in place of nulls, and with further fields."""
    if types.is_null(found) or found == kind:
        return True
    if is_list(found) and types.is_list(kind):
        return _lacks(found.value_type, kind.value_type)
    if types.is_struct(found) and types.is_struct(kind):
        places = [kind.get_field_index(field.name) for field in found]
        pairs = zip(found, places, strict=True)
        return places == sorted(places) and all(
            place >= 0 and _lacks(field.type, kind.field(place).type) for field, place in pairs
        )
    return False
