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
    return list(map(_direction, to_numpy(column)))


def _direction(value: object) -> bytes | None:
    if value is None:
        return None
    vector = np.asarray(value, np.float64).reshape(-1)
    length = np.linalg.norm(vector)
    if not 0 < length < np.inf:
        return None
    return (vector / length).astype("<f4").tobytes()


def near(keys: np.ndarray, threshold: float) -> np.ndarray:
    """Return whether each vector (a row of uint8, from `directions`) is similar to an earlier one that stays.

    `threshold` is the least cosine of duplicates.
    """
    vectors = keys.view("<f4")
    least = threshold - ROUNDING
    all_near = np.zeros(len(vectors), bool)
    kept_rows, count = np.empty_like(vectors), 0
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        batch = vectors[start : start + ROWS_AT_ONCE]
        is_near = np.zeros(len(batch), bool)
        for first in range(0, count, KEPT_AT_ONCE):
            rows = np.flatnonzero(~is_near)
            cosines = batch[rows] @ kept_rows[first : min(first + KEPT_AT_ONCE, count)].T
            is_near[rows] = (cosines >= least).any(axis=1)
        later_near = np.triu(batch @ batch.T >= least, 1)
        for row in range(len(batch)):
            if not is_near[row]:
                is_near |= later_near[row]
        all_near[start : start + len(batch)] = is_near
        survivors = batch[~is_near]
        kept_rows[count : count + len(survivors)] = survivors
        count += len(survivors)
    return all_near
