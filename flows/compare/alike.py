"""Compare values that were computed again with published ones, within a tolerance for models."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

EXACT, SINGLE, HALF = 0.0, 1e-3, 3e-2  # relative to the largest number of the value
LEAST = 1e-6  # below it, numbers are noise
HALVES = {"bfloat16", "float16"}


def tolerance_of(column: pa.DataType, dtypes: Sequence[str | None]) -> float:
    """Return the tolerance of a column, given the `dtype` of each model: without models, none.

    Other batches and devices sum in another order: float32 keeps about three digits, a half two.
    """
    if not dtypes or not _has_floats(column):
        return EXACT
    return HALF if HALVES.intersection(map(str, dtypes)) else SINGLE


def differing(after: pa.ChunkedArray, before: pa.ChunkedArray, tolerance: float) -> list[int]:
    """Return the numbers of the rows whose values are not alike."""
    values = before.to_pylist()
    try:
        pairs = list(zip(after.cast(before.type, safe=False).to_pylist(), values, strict=True))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pairs = list(zip(map(str, after.to_pylist()), map(str, values), strict=True))
    return [number for number, pair in enumerate(pairs) if not alike(*pair, tolerance)]


def alike(a: Any, b: Any, tolerance: float) -> bool:
    """Return True for equal values. Floating-point numbers may differ by the tolerance, also inside."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[name], b[name], tolerance) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return False
        if not all(isinstance(value, float) for value in (*a, *b)):
            return all(alike(*pair, tolerance) for pair in zip(a, b, strict=True))
    elif not (isinstance(a, float) and isinstance(b, float)):
        return bool(a == b)
    x, y = np.atleast_1d(a), np.atleast_1d(b)
    largest = max(np.abs(np.nan_to_num([*x, *y], posinf=0, neginf=0)), default=0.0)
    bound = tolerance * largest + LEAST * bool(tolerance)
    return bool(np.allclose(x, y, rtol=0, atol=bound, equal_nan=True))


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))
