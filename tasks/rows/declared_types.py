"""Give the columns of a batch the types that a trial showed.

A batch's own values may show less of a type: a list may be empty, a field missing, or all values null.
"""

import numpy as np
import pyarrow as pa
from pyarrow import types

from overnight.tasks.rows.arrow_types import is_list
from overnight.tasks.rows.tensors import TENSOR, Column, to_arrow


def as_declared(values: Column, kind: pa.DataType) -> Column:
    """Return the values with the type `kind` if their own type differs only by missing fields or unknown inner types.

    Otherwise return them unchanged: numbers of another type keep that type.
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
