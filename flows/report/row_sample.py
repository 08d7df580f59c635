"""Read published rows once: draw rows to show, count values in bins, and compare predictions with labels.

The pass ends after `MOST_ROWS` rows, `MOST_BYTES` bytes or `MOST_SECONDS`, so that the page of a large partition takes
seconds. The same seed draws the same rows.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.rows.arrow_types import is_list, is_text

MOST_ROWS, MOST_BYTES, MOST_SECONDS = 2_000_000, 10**9, 20.0
MOST_CLASSES = 12  # of the most frequent classes, with one row of each
MOST_CONFUSIONS = 5
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
        numbers = numbers[np.argsort(keys[numbers], kind="stable")[: self.count]]
        if len(numbers):
            tables = filter(None, (self.table, rows.take(numbers)))
            merged_keys = np.concatenate([self.keys, keys[numbers]])
            order = np.argsort(merged_keys, kind="stable")[: self.count]
            self.keys, self.table = (
                merged_keys[order],
                pa.concat_tables(tables, promote_options="permissive").take(order),
            )


@dataclass
class RowSample:
    """One pass over rows, which draws `count` rows a group, and counts values between the `edges` of each column.

    A column of texts is counted by its lengths. `classes` are the values of predictions, the most frequent first.
    """

    roles: Roles = field(default_factory=Roles)
    edges: Mapping[str, np.ndarray] = field(default_factory=dict)
    classes: Sequence[str] = ()
    count: int = 0
    seed: int = 0
    rows: int = 0
    is_whole: bool = True
    histograms: dict[str, np.ndarray] = field(default_factory=dict)  # rows per bin, of numbers or of lengths
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)  # rows by label and prediction

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.at_random = Smallest(self.count)
        self.least, self.most = Smallest(self.count // 2), Smallest(self.count // 2)
        self.by_class = {name: Smallest(1) for name in self.classes[:MOST_CLASSES]}

    def read(self, tables: Iterable[pa.Table]) -> None:
        """Read tables until a bound. Then `is_whole` is False."""
        size, end = 0, time.monotonic() + MOST_SECONDS
        for table in tables:
            if self.rows >= MOST_ROWS or size >= MOST_BYTES or time.monotonic() > end:
                self.is_whole = False
                break
            self.rows += len(table)
            size += table.nbytes
            if len(table):
                self._add(table)

    def groups(self) -> dict[str, pa.Table]:
        """Return the drawn rows by the title of their group."""
        titles = {"Random rows": self.at_random.table, "Least sure": self.least.table, "Most sure": self.most.table}
        groups = {title: table for title, table in titles.items() if table}
        examples = [rows.table for rows in self.by_class.values() if rows.table]
        if examples:
            groups[f"One per {self.roles.prediction}"] = pa.concat_tables(examples, promote_options="permissive")
        return groups

    @property
    def agreement(self) -> float | None:
        """Return the share of rows with a label and a prediction in which they agree; None without such rows."""
        agreeing = sum(rows for (label, prediction), rows in self.pairs.items() if label == prediction)
        return agreeing / self.pairs.total() if self.pairs else None

    @property
    def most_frequent(self) -> float | None:
        """Return the share of the most frequent label, or None for one label.

        A column that has another name than predictions have must have labels as values, otherwise return None.
        """
        labels: Counter[str] = Counter()
        for (label, _), rows in self.pairs.items():
            labels[label] += rows
        is_prediction = _ends(self.roles.prediction, PREDICTIONS)
        if len(labels) < 2 or not (is_prediction or {value for _, value in self.pairs} <= labels.keys()):
            return None
        return max(labels.values()) / labels.total()

    @property
    def confusions(self) -> list[tuple[tuple[str, str], int]]:
        """Return the most frequent differences between labels and predictions, with their numbers of rows."""
        differences = [item for item in self.pairs.items() if item[0][0] != item[0][1]]
        return sorted(differences, key=lambda item: -item[1])[:MOST_CONFUSIONS]

    def _add(self, table: pa.Table) -> None:
        names = set(table.column_names)
        if self.count:
            self._draw(table)
        if self.roles.truth and {self.roles.truth, self.roles.prediction} <= names:
            columns = {"label": _as_text(table[self.roles.truth]), "prediction": _as_text(table[self.roles.prediction])}
            counts = pa.table(columns).drop_null().group_by(list(columns), use_threads=False)
            for row in counts.aggregate([([], "count_all")]).to_pylist():
                self.pairs[row["label"], row["prediction"]] += row["count_all"]
        for name in names & self.edges.keys():
            bins = self.edges[name]
            measures = _lengths(table[name]) if bins is LENGTHS else _numbers(table[name])
            counts = np.histogram(measures, bins)[0]
            self.histograms[name] = self.histograms.get(name, 0) + counts

    def _draw(self, table: pa.Table) -> None:
        keys = self.random.random(len(table))
        self.at_random.offer(table, keys)
        if self.roles.score in table.column_names:
            scores = _scores(table[self.roles.score])
            self.least.offer(table, scores)
            self.most.offer(table, -scores)
        if self.by_class and self.roles.prediction in table.column_names:
            values = _as_text(table[self.roles.prediction])
            for name, rows in self.by_class.items():
                is_class = pc.fill_null(pc.equal(values, name), False).to_numpy()
                rows.offer(table, np.where(is_class, keys, np.nan))


def roles_of(columns: Mapping[str, Mapping[str, Any]], label: str = "label") -> Roles:
    """Return the columns with a role, by their names and statistics. `label` is the column of the true labels."""
    prediction, few_values = "", ""
    score = next((name for ending in SCORES for name in columns if _is_score(name, ending, columns)), "")
    for name, record in columns.items():
        if _ends(name, SCORES):
            continue
        if _ends(name, PREDICTIONS):
            prediction = prediction or name
        elif name != label and 1 < len(record.get("classes") or ()) <= 4 * MOST_CLASSES:
            is_number = record.get("mean") is not None
            if not (is_number and few_values):  # the columns of models come after those of the source
                few_values = name
    prediction = prediction or few_values
    has_truth = label in columns and prediction not in ("", label)
    return Roles(score, prediction or label * (label in columns), label * has_truth)


def bin_edges(record: Mapping[str, Any], earlier: Mapping[str, Any]) -> np.ndarray | None:
    """Return the edges of a column's bins, which also cover the earlier column, or None if it has no histogram."""
    if record.get("type") in ("string", "large_string") and record.get("classes") is None:
        return LENGTHS
    limits = [side[name] for side in (record, earlier) for name in ("min", "max") if side.get(name) is not None]
    if not limits or record.get("mean") is None:
        return None
    low, high = min(limits), max(limits)
    if low == high or math.isinf(high - low):
        return None
    return np.linspace(low, high, BINS + 1)


def light_tables(read: Callable[[list[str] | None], Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Yield the tables of a reader of columns without embeddings and other long lists of numbers.

    The first table has the schema.
    """
    first = next(read(None), None)
    if first is None:
        return
    columns = [field.name for field in first.schema if not _is_heavy(field)]
    yield from read(columns if len(columns) < len(first.schema) else None)


def _lengths(column: pa.ChunkedArray) -> np.ndarray:
    return pc.utf8_length(_as_text(column.drop_null())).to_numpy()


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    numbers = column.drop_null().cast(pa.float64(), safe=False).to_numpy()
    return numbers[np.isfinite(numbers)]


def _scores(column: pa.ChunkedArray) -> np.ndarray:
    """Return a score a row: a number, or the first of a list, which is its highest; NaN without one."""
    if is_list(column.type) and _is_number(column.type.value_type):
        scores = np.full(len(column), np.nan)
        for number, row in enumerate(column.to_pylist()):
            if row and row[0] is not None:
                scores[number] = row[0]
        return scores
    if not _is_number(column.type):
        return np.full(len(column), np.nan)
    return pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy()


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values as texts; nulls for a type without a text, such as a struct."""
    try:
        return column if is_text(column.type) else column.cast(pa.string())
    except pa.ArrowNotImplementedError:
        return pa.chunked_array([pa.nulls(len(column), pa.string())])


def _is_score(name: str, ending: str, columns: Mapping[str, Any]) -> bool:
    """Return whether a column has this ending. Only scores of boxes have the highest first, those of classes do not."""
    return _ends(name, (ending,)) and (ending != "scores" or f"{name.removesuffix(ending)}boxes" in columns)


def _ends(name: str, endings: Sequence[str]) -> bool:
    return any(name == ending or name.endswith(f"_{ending}") for ending in endings)


def _is_heavy(field: pa.Field) -> bool:
    return is_list(field.type) and _is_number(field.type.value_type) and not _ends(field.name, SCORES)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
