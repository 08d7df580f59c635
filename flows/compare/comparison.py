"""Compare the rows of two sides by `row_id`: agreement, accuracy, and each column but `uri` and the partition's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from overnight.flows.compare.columns import Compared, compare_column
from overnight.flows.compare.sides import Drawing, Side, both_ways, published_sides
from overnight.flows.job.model import Job
from overnight.flows.ledger.results import Result
from overnight.flows.report.columns import Column, compare_columns
from overnight.tasks.errors import JobError, did_you_mean
from overnight.tasks.rows.agreement import mcnemar, predictions, rows_needed
from overnight.tasks.rows.arrow_types import is_text

EXAMPLES = 3
LABEL = "label"  # the column of true labels


@dataclass(frozen=True)
class Accuracy:
    """How many rows have the true label on each side, and on one side only, with the p value of McNemar's test."""

    truth: str
    rows: int
    a: int
    b: int
    only_a: int
    only_b: int

    @property
    def p(self) -> float:
        return mcnemar(self.only_a, self.only_b)


@dataclass(frozen=True)
class OneSided:
    """Rows of one side only. `quarantined` of them are in the quarantine of the other side."""

    rows: int
    quarantined: int
    examples: list[str]


@dataclass
class Comparison:
    """What differs between two sides. `rows_a` and `rows_b` are the rows of both, in the same order.

    `total` rows could be drawn. `main` is the column of labels by which the sides agree or not.
    """

    a: Side
    b: Side
    drawing: Drawing
    total: int
    rows_a: pa.Table
    rows_b: pa.Table
    only_a: OneSided
    only_b: OneSided
    columns: list[Compared]
    same: list[str]  # columns without a difference
    main: Compared | None
    accuracy: Accuracy | None
    is_complete: bool = False  # all of the `total` rows were drawn
    statistics: list[Column] = field(default_factory=list)  # of other partitions, or of results without common rows

    @property
    def rows(self) -> int:
        return len(self.rows_a)

    @property
    def lost(self) -> int:
        """Return how many of the drawn rows are on one side only: the other one filtered or quarantined them."""
        return len(self.a.table) + len(self.b.table) - 2 * self.rows

    @property
    def rows_needed(self) -> int | None:
        """Return the rows that show the difference, if as many differ as among these; None without labels."""
        if self.main is None or not self.rows:
            return None
        return rows_needed(self.drawing.difference, 1 - (self.main.agreement.share or 0.0))

    @property
    def has_enough(self) -> bool:
        return self.is_complete or self.rows_needed is None or self.rows >= self.rows_needed


def compare_jobs(
    jobs: Sequence[tuple[str, Job]], partition: str, drawing: Drawing, column: str | None = None
) -> Comparison:
    """Compute drawn rows of the first job's partition with both jobs, each a name and a job, and compare them."""
    # Without a number of rows, the first ones show how many it takes: J. Wittes and E. Brittain 1990, "The role of
    # internal pilot studies in increasing the efficiency of clinical trials", Statistics in Medicine 9, 65-72.
    with both_ways(jobs, partition, drawing) as ways:
        ways.extend(drawing.first)
        comparison = compare_sides(ways.a, ways.b, drawing, ways.total, column)
        comparison.is_complete = ways.rows == ways.total
        if drawing.rows is None and not comparison.has_enough:
            # Filters and quarantines leave fewer rows than are drawn, and steps may make several of one.
            ways.extend(math.ceil((comparison.rows_needed or 0) * ways.rows / comparison.rows))
            comparison = compare_sides(ways.a, ways.b, drawing, ways.total, column)
            comparison.is_complete = ways.rows == ways.total
        return comparison


def compare_published(a: Result, b: Result, drawing: Drawing, column: str | None = None) -> Comparison:
    """Compare the published rows of two results, and the statistics of their columns unless all rows are the same."""
    side_a, side_b, total = published_sides(a, b, drawing)
    comparison = compare_sides(side_a, side_b, drawing, total, column)
    comparison.is_complete = total <= drawing.most
    if not total or a.receipt["partition"] != b.receipt["partition"]:
        comparison.statistics = compare_columns(b.receipt, [a.receipt], b.job.checks)
    return comparison


def compare_sides(a: Side, b: Side, drawing: Drawing, total: int, column: str | None = None) -> Comparison:
    """Return the comparison. `column` is the main column: by default a predicted label, or labels that differ most."""
    positions = pc.index_in(_ids(a), value_set=_ids(b))
    rows_a = a.table.filter(positions.is_valid())
    rows_b = b.table.take(positions.drop_null())
    partition_columns = ",".join(side.job.sink.partition_column for side in (a, b)).split(",")
    names = [name for name in rows_a.column_names if name in rows_b.column_names]
    names = [name for name in names if name not in {"row_id", "uri", *partition_columns}]
    columns = [compare_column(name, rows_a, rows_b) for name in names]
    main = _main(columns, column)
    only_a, only_b = _one_sided(a, b), _one_sided(b, a)
    different = [one for one in columns if one is main or one.differs.any()]
    same = [one.name for one in columns if one not in different]
    accuracy = _accuracy(rows_a, rows_b, main)
    return Comparison(a, b, drawing, total, rows_a, rows_b, only_a, only_b, different, same, main, accuracy)


def _ids(side: Side) -> pa.ChunkedArray:
    return side.table["row_id"].cast(pa.string())


def _one_sided(side: Side, other: Side) -> OneSided:
    ids = _ids(side)
    missing = ids.filter(pc.invert(pc.is_in(ids, value_set=_ids(other)))).to_pylist()
    quarantined = len(other.quarantined.keys() & set(missing)) + side.more_quarantined
    return OneSided(len(missing) + side.more_rows, quarantined, missing[:EXAMPLES])


def _main(columns: Sequence[Compared], name: str | None) -> Compared | None:
    """Return the column by which the sides agree or not."""
    labels = {column.name: column for column in columns if column.kind in ("label", "value")}
    if name is not None:
        if name not in labels:
            hint = did_you_mean(name, labels)
            raise JobError(f"--column: expected one of {', '.join(labels) or 'no column'}, found {name}{hint}.")
        return labels[name]
    candidates = [labels[prediction] for prediction in predictions(labels)] or list(labels.values())
    return min(candidates, key=lambda column: column.agreement.agreeing, default=None)


def _accuracy(rows_a: pa.Table, rows_b: pa.Table, main: Compared | None) -> Accuracy | None:
    """Return the accuracy of both sides among the rows with a true label, if there are any."""
    if main is None or LABEL not in rows_a.column_names or main.name == LABEL:
        return None
    truth, kinds = rows_a[LABEL], [rows[main.name].type for rows in (rows_a, rows_b)]
    if not is_text(truth.type) or kinds[0] != kinds[1] or not (main.kind == "label" or is_text(kinds[0])):
        return None
    rows_a, rows_b, truth = (rows.filter(truth.is_valid()) for rows in (rows_a, rows_b, truth))
    if not len(truth):
        return None
    is_right = []
    for rows in (rows_a, rows_b):
        answers = rows[main.name].cast(pa.string())
        is_right.append(pc.fill_null(pc.equal(answers, truth.cast(pa.string())), False).to_numpy())
    a, b = is_right
    return Accuracy(LABEL, len(a), int(a.sum()), int(b.sum()), int((a & ~b).sum()), int((b & ~a).sum()))
