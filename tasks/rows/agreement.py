"""Measure how far two results of the same rows agree, and how many rows it takes to see a difference.

Rows are found by `row_id`. Values are compared by hashes of 64 bits: memory holds 8 bytes for each row and each value.
A million rows of two results take about 0.2 GB while they are compared. A check before a publish and `overnight
compare` use this file.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import pyarrow as pa

from overnight.tasks.rows.arrow_types import is_list, with_inner_fields, with_types
from overnight.tasks.rows.expressions.engine import database

CONFIDENCE, POWER = 0.95, 0.80
PREDICTION = "predicted_label"


@dataclass(frozen=True)
class Agreement:
    """The number of compared rows, and of those with equal values. `only_a` and `only_b` are rows of one result."""

    agreeing: int
    rows: int
    only_a: int = 0
    only_b: int = 0

    @property
    def share(self) -> float | None:
        return self.agreeing / self.rows if self.rows else None

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.agreeing, self.rows)


@dataclass(frozen=True)
class Hashes:
    """Hashes of the row ids (uint64), and of their values (uint64, rows x columns)."""

    ids: np.ndarray
    values: np.ndarray


def wilson(count: int, rows: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the interval of a share `count / rows`; from 0 to 1 without rows.

    E. B. Wilson 1927, "Probable inference, the law of succession, and statistical inference", JASA 22, 209-212.
    """
    if not rows:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, spread = count / rows, z * z / rows
    centre = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / rows + spread / (4 * rows)) / (1 + spread)
    return max(centre - half, 0.0), min(centre + half, 1.0)


def rows_needed(difference: float, discordant: float) -> int:
    """Return how many pairs show a difference of two shares with McNemar's test, if the share `discordant` differs."""
    # R. J. Connor 1987, "Sample size for testing differences in proportions for the paired-sample design",
    # Biometrics 43, 207-211. The share of pairs that differ is at least the difference.
    normal, share = NormalDist(), min(max(discordant, difference), 1.0)
    z_test, z_power = normal.inv_cdf((1 + CONFIDENCE) / 2), normal.inv_cdf(POWER)
    root = z_test * math.sqrt(share) + z_power * math.sqrt(share - difference**2)
    return math.ceil((root / difference) ** 2)


def mcnemar(only_a: int, only_b: int) -> float:
    """Return the p value of McNemar's test, exact: how likely chance alone splits the differing pairs as unevenly.

    Q. McNemar 1947, "Note on the sampling error of the difference between correlated proportions", Psychometrika 12.
    """
    pairs, fewer = only_a + only_b, min(only_a, only_b)
    if not pairs:
        return 1.0
    # The logarithm keeps many pairs fast: the whole numbers of 20,000 pairs would take minutes.
    logarithm = math.lgamma(pairs + 1) - math.lgamma(fewer + 1) - math.lgamma(pairs - fewer + 1)
    term, tail = math.exp(logarithm - pairs * math.log(2)), 0.0
    for count in range(fewer, -1, -1):
        tail += term
        term *= count / (pairs - count + 1)
    return min(2 * tail, 1.0)


def most_that_differ(count: int, rows: int, total: int, confidence: float = CONFIDENCE) -> int:
    """Return how many of `total` rows differ at most, if `count` of `rows` drawn ones do: exact, one-sided.

    J. P. Buonaccorsi 1987, "Confidence intervals for proportions in finite populations", Am. Stat. 41.
    """
    low, high = count, total - (rows - count)
    while low < high:  # with more differing rows it is less likely that so few of them are drawn
        middle = (low + high + 1) // 2
        if _at_most(count, rows, middle, total) > 1 - confidence:
            low = middle
        else:
            high = middle - 1
    return low


def _at_most(count: int, rows: int, differing: int, total: int) -> float:
    """Return how likely `rows` draws without replacement have at most `count` of the `differing` rows."""
    probability = 0.0
    for number in range(max(rows - (total - differing), 0), count + 1):
        ways = _ways(differing, number) + _ways(total - differing, rows - number) - _ways(total, rows)
        probability += math.exp(ways)
    return probability


def _ways(total: int, rows: int) -> float:
    """Return the logarithm of the number of ways to draw `rows` of `total` rows."""
    return math.lgamma(total + 1) - math.lgamma(rows + 1) - math.lgamma(total - rows + 1)


def predictions(names: Iterable[str]) -> list[str]:
    """Return the columns of predicted labels among these names."""
    return [name for name in names if name == PREDICTION or name.endswith(f"_{PREDICTION}")]


def value_hashes(table: pa.Table, columns: Sequence[str], as_text: Iterable[str] = ()) -> np.ndarray:
    """Return a hash for each value of these columns: uint64, rows x columns. Values `as_text` are cast before."""
    matrix = np.empty((len(table), len(columns)), np.uint64)
    if not columns or not len(table):
        return matrix
    names = [f"c{number}" for number in range(len(columns))]  # a name of data may hold any character
    rows = table.select(columns).rename_columns(names)
    rows = rows.cast(with_types(rows.schema, _hashable))
    terms = []
    for short, name in zip(names, columns, strict=True):
        if name in as_text:
            terms.append(f"hash({short}::VARCHAR)")
        elif is_list(rows[short].type):  # DuckDB's hash is the same for null, [] and [null]
            terms.append(f"hash({short}, {short} IS NULL, len({short}))")
        else:
            terms.append(f"hash({short})")
    with database().cursor() as cursor:
        cursor.register("__rows", rows)
        hashes = cursor.execute(f"SELECT {', '.join(terms)} FROM __rows").fetchnumpy()
    for number, column in enumerate(hashes.values()):
        matrix[:, number] = column
    return matrix


def _hashable(kind: pa.DataType) -> pa.DataType:
    """Return the type in which DuckDB reads a column: it has no numbers of 16 bits and no decimals of 256."""
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal256(kind):
        return pa.string()
    return with_inner_fields(kind, lambda field: field.with_type(_hashable(field.type)))


def hashes_of(tables: Iterable[pa.Table], columns: Sequence[str], as_text: Iterable[str] = ()) -> Hashes:
    """Return the hashes of the rows of all tables."""
    parts = [np.empty((0, 1 + len(columns)), np.uint64)]
    for table in tables:
        parts.append(value_hashes(table, ["row_id", *columns], {"row_id", *as_text}))
    matrix = np.concatenate(parts)
    return Hashes(matrix[:, 0], matrix[:, 1:])


def agreement(a: Hashes, b: Hashes) -> Agreement:
    """Return how many rows with the same `row_id` have the same values in all columns."""
    _, rows_a, rows_b = np.intersect1d(a.ids, b.ids, return_indices=True)
    agreeing = int((a.values[rows_a] == b.values[rows_b]).all(axis=1).sum())
    return Agreement(agreeing, len(rows_a), len(a.ids) - len(rows_a), len(b.ids) - len(rows_b))
