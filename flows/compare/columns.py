"""Compare a column of the same rows of two sides: labels that flip, and distances of numbers and of vectors.

Labels are texts, truth values, and whole numbers of few values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.rows.agreement import Agreement, agreement, hashes_of
from overnight.tasks.rows.arrow_types import is_list, is_text

FLIPS, MOST_LABELS = 12, 1000
FEW_NUMBERS = 50  # different whole numbers that are labels
QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class Flip:
    """Rows whose label is `a` on one side and `b` on the other, by their numbers among the rows of both."""

    a: str
    b: str
    numbers: list[int]

    @property
    def rows(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class Distances:
    """Distances of the rows of both: |a - b| of numbers, 1 - cosine of vectors. It is NaN for a row without one."""

    of_rows: np.ndarray = field(repr=False)
    rows: int
    mean: float
    quantiles: dict[float, float]


@dataclass(frozen=True)
class Compared:
    """A column of both sides. Its `kind` is label, number, vector or value; `differs` marks the rows of both."""

    name: str
    kind: str
    agreement: Agreement
    differs: np.ndarray = field(repr=False)
    flips: Sequence[Flip] = ()
    more_flips: int = 0
    distances: Distances | None = None

    @property
    def more_rows(self) -> int:
        """Return how many rows differ and have no distance, such as NaN on one side."""
        if self.distances is None:
            return int(self.differs.sum())
        return int((self.differs & ~np.isfinite(self.distances.of_rows)).sum())


def compare_column(name: str, rows_a: pa.Table, rows_b: pa.Table) -> Compared:
    types = [rows[name].type for rows in (rows_a, rows_b)]
    as_text = {name} if types[0] != types[1] else set()
    hashes = [hashes_of([rows.select(["row_id", name])], [name], as_text) for rows in (rows_a, rows_b)]
    differs = (hashes[0].values != hashes[1].values)[:, 0]
    equal = agreement(*hashes)
    a, b = rows_a[name], rows_b[name]
    if all(is_list(kind) and pa.types.is_floating(kind.value_type) for kind in types):
        return Compared(name, "vector", equal, differs, distances=_summary(cosine_distances(a, b)))
    if all(map(_is_label, (a, b))):
        flips = _flips(a, b, differs)
        return Compared(name, "label", equal, differs, flips[:FLIPS], max(len(flips) - FLIPS, 0))
    if all(map(_is_number, types)):
        with np.errstate(invalid="ignore"):  # inf - inf
            gap = np.abs(_numbers(a) - _numbers(b))
        return Compared(name, "number", equal, differs, distances=_summary(gap))
    return Compared(name, "value", equal, differs)


def cosine_distances(a: pa.ChunkedArray, b: pa.ChunkedArray) -> np.ndarray:
    """Return 1 - cosine of the angle of each pair of vectors: 0 to 2, and NaN for a null, a zero or another length."""
    distances = np.full(len(a), np.nan)
    for row, (first, second) in enumerate(zip(a, b, strict=True)):
        if first.is_valid and second.is_valid and len(first) == len(second):
            x, y = (side.values.to_numpy(zero_copy_only=False).astype(np.float64) for side in (first, second))
            scale = np.linalg.norm(x) * np.linalg.norm(y)
            if scale > 0:
                distances[row] = 1 - min(max(x @ y / scale, -1.0), 1.0)
    return distances


def _summary(distances: np.ndarray) -> Distances | None:
    finite = distances[np.isfinite(distances)]
    if not len(finite):
        return None
    quantiles = dict(zip(QUANTILES, map(float, np.quantile(finite, QUANTILES)), strict=True))
    return Distances(distances, len(finite), float(finite.mean()), quantiles)


def _flips(a: pa.ChunkedArray, b: pa.ChunkedArray, differs: np.ndarray) -> list[Flip]:
    """Return the flips, the most frequent first."""
    numbers = np.flatnonzero(differs)
    labels = [column.take(pa.array(numbers)).to_pylist() for column in (a, b)]
    flips: dict[tuple[str, str], Flip] = {}
    for number, *pair in zip(numbers.tolist(), *labels, strict=True):
        before, after = map(_text, pair)
        flips.setdefault((before, after), Flip(before, after, [])).numbers.append(number)
    return sorted(flips.values(), key=lambda flip: -flip.rows)


def _text(label: Any) -> str:
    return "null" if label is None else str(label)


def _is_label(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if is_text(kind) or pa.types.is_boolean(kind):
        return len(column.unique()) <= MOST_LABELS
    return pa.types.is_integer(kind) and len(column.unique()) <= FEW_NUMBERS


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return pc.fill_null(column.cast(pa.float64(), safe=False), np.nan).to_numpy()
