"""Find vectors that point in nearly the same direction, by their exact cosine similarities in float32.

The time grows with the square of the number of vectors that stay: 100,000 of 384 numbers take 65 seconds on one CPU.
"""

import numpy as np
import pyarrow as pa

from overnight.tasks.rows.tensors import to_numpy

ROWS_AT_ONCE = 1024
ROUNDING = 1e-6  # of a product in float32: equal vectors may have a cosine of 0.9999999
KEPT_AT_ONCE = 2**14  # 64 MiB of similarities


def directions(column: pa.ChunkedArray) -> list[bytes | None]:
    """Return each vector of a column of lists of numbers, scaled to length 1, as the bytes of its float32 numbers.

    The result is None for a vector that is null or zero, or has a number that is not finite.
    """
    return [None if value is None else _direction(value) for value in to_numpy(column)]


def _direction(value: object) -> bytes | None:
    vector = np.asarray(value, np.float64).reshape(-1)
    length = np.linalg.norm(vector)
    return (vector / length).astype("<f4").tobytes() if length > 0 and np.isfinite(length) else None


def near(keys: np.ndarray, threshold: float) -> np.ndarray:
    """Return a bool for each vector: True if an earlier one that stays is similar to it, so that it must be dropped.

    `keys` is an array of uint8 with the bytes of one vector, from `directions`, per row. `threshold` is the least
    cosine of duplicates.
    """
    vectors = keys.view("<f4")
    least = threshold - ROUNDING
    gone = np.zeros(len(vectors), bool)
    kept, count = np.empty_like(vectors), 0
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        some = vectors[start : start + ROWS_AT_ONCE]
        is_near = np.zeros(len(some), bool)
        for first in range(0, count, KEPT_AT_ONCE):
            rest = np.flatnonzero(~is_near)
            similar = some[rest] @ kept[first : min(first + KEPT_AT_ONCE, count)].T
            is_near[rest] = (similar >= least).any(axis=1)
        among = np.triu(some @ some.T >= least, 1)
        for row in range(len(some)):
            if not is_near[row]:
                is_near |= among[row]
        gone[start : start + len(some)] = is_near
        stay = some[~is_near]
        kept[count : count + len(stay)] = stay
        count += len(stay)
    return gone
