"""Read published rows once: draw rows to show, count values in bins, and compare predictions with labels.

The pass ends after `MOST_ROWS` rows, `MOST_BYTES` bytes or `MOST_SECONDS`, so that the page of a large partition takes
seconds. The same seed draws the same rows.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.rows.arrow_types import is_bytes, is_list, is_text

MOST_ROWS, MOST_BYTES, MOST_SECONDS = 2_000_000, 10**9, 20.0
MOST_CLASSES = 12  # of the most frequent classes, with one row of each
BINS = 24
# The edges of the bins of lengths, in characters.
LENGTHS = np.array([0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10**4, 10**5, 10**9])
PREDICTIONS, SCORES = ("predicted_label",), ("confidence", "score", "probability", "scores")


@dataclass(frozen=True)
class Roles:
    """The columns with a role in the gallery; empty if no column has it."""

    score: str = ""
    prediction: str = ""
    truth: str = ""


@dataclass
class Smallest:
    """The rows with the smallest keys among all rows that it was offered, at most `count`."""

    count: int
    keys: np.ndarray = field(default_factory=lambda: np.empty(0))
    table: pa.Table | None = None

    def offer(self, rows: pa.Table, keys: np.ndarray) -> None:
        """Keep the rows whose keys are finite and among the smallest so far."""
        usable = np.isfinite(keys)
        if len(self.keys) == self.count:
            usable &= keys < self.keys[-1]
        numbers = np.flatnonzero(usable)
        if not len(numbers):
            return
        numbers = numbers[np.argsort(keys[numbers], kind="stable")[: self.count]]
        parts = [rows.take(numbers)]
        if self.table is not None:
            parts.insert(0, self.table)
        merged_keys = np.concatenate([self.keys, keys[numbers]])
        order = np.argsort(merged_keys, kind="stable")[: self.count]
        self.keys = merged_keys[order]
        self.table = pa.concat_tables(parts, promote_options="permissive").take(order)


@dataclass
class Agreement:
    """How many rows have a prediction and a label, how many agree, and the most frequent confusions."""

    rows: int = 0
    agreeing: int = 0
    confusions: dict[tuple[str, str], int] = field(default_factory=dict)  # (label, prediction) -> rows

    @property
    def share(self) -> float | None:
        return self.agreeing / self.rows if self.rows else None

    def add(self, truth: pa.ChunkedArray, prediction: pa.ChunkedArray) -> None:
        """Count the rows of one table."""
        truth, prediction = _as_text(truth), _as_text(prediction)
        is_equal = pc.equal(truth, prediction)
        counts = pc.value_counts(is_equal.drop_null())
        for value in counts.to_pylist():
            self.rows += value["counts"]
            if value["values"]:
                self.agreeing += value["counts"]
        differences = pc.invert(pc.fill_null(is_equal, True))
        pairs = zip(truth.filter(differences).to_pylist(), prediction.filter(differences).to_pylist(), strict=True)
        for pair in pairs:
            self.confusions[pair] = self.confusions.get(pair, 0) + 1


@dataclass
class RowSample:
    """What one pass over rows found. `groups` has the drawn rows by the title of their group."""

    rows: int = 0
    is_whole: bool = True
    groups: dict[str, pa.Table] = field(default_factory=dict)
    histograms: dict[str, np.ndarray] = field(default_factory=dict)  # rows per bin, of numbers or of lengths
    agreement: Agreement | None = None


def roles_of(columns: Mapping[str, Mapping[str, Any]], label: str = "") -> Roles:
    """Return the columns with a role, by their names and statistics. `label` is the column of the true labels."""
    score, prediction, few_values = "", "", ""
    for name, record in columns.items():
        if _ends(name, SCORES):
            score = score or name
        elif _ends(name, PREDICTIONS):
            prediction = prediction or name
        elif name != label and 1 < len(record.get("classes") or ()) <= 4 * MOST_CLASSES:
            few_values = few_values or name
    prediction = prediction or few_values
    has_truth = label in columns and prediction not in ("", label)
    return Roles(score, prediction or label * (label in columns), label * has_truth)


def light_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of a table without embeddings and other long lists of numbers."""
    return [field.name for field in schema if not _is_heavy(field)]


def sample_rows(
    tables: Iterable[pa.Table],
    roles: Roles,
    classes: Sequence[str],
    edges: Mapping[str, np.ndarray],
    count: int,
    seed: int,
) -> RowSample:
    """Draw at most `count` rows a group from the tables, and count values between the `edges` of each column.

    A column of texts is counted by its lengths. With a `count` of 0, no rows are drawn.
    """
    sample, draw = RowSample(), _Draw(roles, classes, count, np.random.default_rng(seed))
    if roles.truth:
        sample.agreement = Agreement()
    size, end = 0, time.monotonic() + MOST_SECONDS
    for table in tables:
        if sample.rows >= MOST_ROWS or size >= MOST_BYTES or time.monotonic() > end:
            sample.is_whole = False
            break
        sample.rows += len(table)
        size += table.nbytes
        if not len(table):
            continue
        if count:
            draw.offer(table)
        if sample.agreement and {roles.truth, roles.prediction} <= {*table.column_names}:
            sample.agreement.add(table[roles.truth], table[roles.prediction])
        for name, bins in edges.items():
            if name in table.column_names:
                counts = np.histogram(_measures(table[name]), bins)[0]
                sample.histograms[name] = sample.histograms.get(name, 0) + counts
    sample.groups = draw.groups()
    return sample


@dataclass
class _Draw:
    roles: Roles
    classes: Sequence[str]
    count: int
    random: np.random.Generator

    def __post_init__(self) -> None:
        self.at_random = Smallest(self.count)
        self.least, self.most = Smallest(self.count // 2), Smallest(self.count // 2)
        self.by_class = {name: Smallest(1) for name in self.classes[:MOST_CLASSES]}

    def offer(self, table: pa.Table) -> None:
        keys = self.random.random(len(table))
        self.at_random.offer(table, keys)
        if self.roles.score in table.column_names:
            scores = _scores(table[self.roles.score])
            self.least.offer(table, scores)
            self.most.offer(table, -scores)
        if self.by_class and self.roles.prediction in table.column_names:
            values = _as_text(table[self.roles.prediction])
            for name, drawn in self.by_class.items():
                numbers = np.flatnonzero(pc.fill_null(pc.equal(values, name), False).to_numpy())
                drawn.offer(table.take(numbers), keys[numbers])

    def groups(self) -> dict[str, pa.Table]:
        titles = {"Random rows": self.at_random.table, "Least sure": self.least.table, "Most sure": self.most.table}
        groups = {title: table for title, table in titles.items() if table is not None}
        drawn = [one.table for one in self.by_class.values() if one.table is not None]
        if drawn:
            groups[f"One per {self.roles.prediction}"] = pa.concat_tables(drawn, promote_options="permissive")
        return groups


def bin_edges(record: Mapping[str, Any], earlier: Mapping[str, Any]) -> np.ndarray | None:
    """Return the edges of a column's bins, which also cover the earlier column, or None if it has no histogram."""
    if record.get("type") in ("string", "large_string") and record.get("classes") is None:
        return LENGTHS
    limits = [side[name] for side in (record, earlier) for name in ("min", "max") if side.get(name) is not None]
    if not limits or min(limits) == max(limits) or record.get("mean") is None:
        return None
    return np.linspace(min(limits), max(limits), BINS + 1)


def _measures(column: pa.ChunkedArray) -> np.ndarray:
    values = column.drop_null()
    if is_text(values.type):
        return pc.utf8_length(values).to_numpy()
    numbers = values.cast(pa.float64(), safe=False).to_numpy()
    return numbers[np.isfinite(numbers)]


def _scores(column: pa.ChunkedArray) -> np.ndarray:
    """Return a score a row: a number, or the first of a list, which is its highest; NaN without one."""
    if is_list(column.type):
        scores = np.full(len(column), np.nan)
        for number, row in enumerate(column.to_pylist()):
            if row and row[0] is not None:
                scores[number] = row[0]
        return scores
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        return np.full(len(column), np.nan)
    return pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy()


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column if is_text(column.type) else column.cast(pa.string())


def _ends(name: str, endings: Sequence[str]) -> bool:
    return any(name == ending or name.endswith(f"_{ending}") for ending in endings)


def _is_heavy(field: pa.Field) -> bool:
    kind = field.type
    if is_bytes(kind) or not is_list(kind):
        return False
    is_of_numbers = pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    return is_of_numbers and not _ends(field.name, SCORES)


Reader = Callable[[list[str] | None], Iterator[pa.Table]]


def light_tables(read: Reader) -> Iterator[pa.Table]:
    """Yield the tables of a reader of columns without heavy columns. The first table has the schema."""
    first = next(read(None), None)
    if first is None:
        return
    columns = light_columns(first.schema)
    yield from read(columns if len(columns) < len(first.schema) else None)
