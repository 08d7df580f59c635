"""Render a comparison as one HTML page, with a gallery of the rows that differ. It runs no script."""

from typing import Any

import numpy as np
import pyarrow as pa

from overnight.flows.compare.comparison import Comparison
from overnight.flows.compare.words import distances_of, level_of, sentences, title_of
from overnight.flows.preview_cells import text_of, values
from overnight.flows.report.gallery import LONG_TEXT, Gallery, Group
from overnight.flows.report.page import environment

FLIPS_SHOWN, ROWS_A_FLIP, ROWS_FARTHEST = 6, 6, 24


def render(comparison: Comparison) -> str:
    """Return the page of a comparison."""
    page = environment().get_template("compare.html.j2")
    level = level_of(comparison)
    return page.render(
        comparison=comparison,
        verdict={"level": level, "title": title_of(comparison), "sentences": sentences(comparison)},
        groups=_groups(comparison),
        distances_of=distances_of,
    )


def _groups(comparison: Comparison) -> list[Group]:
    """Return rows that differ: some of each of the most frequent flips, or without flips the ones farthest apart."""
    gallery, main = Gallery(comparison.a.job), comparison.main
    groups = []
    for flip in main.flips[:FLIPS_SHOWN] if main else ():
        title = f"{flip.a} in A, {flip.b} in B: {flip.rows:,} row{'s' * (flip.rows != 1)}"
        groups.append(gallery.group(title, _shown(comparison, flip.numbers[:ROWS_A_FLIP])))
    for column in [] if groups else comparison.columns:
        numbers = np.flatnonzero(column.differs)
        if column.distances:
            numbers = numbers[np.argsort(-np.nan_to_num(column.distances.of_rows[numbers]), kind="stable")]
        if len(numbers):
            title = f"The largest differences of {column.name}"
            groups.append(gallery.group(title, _shown(comparison, numbers[:ROWS_FARTHEST].tolist())))
    return groups


def _shown(comparison: Comparison, numbers: list[int]) -> pa.Table:
    """Return these rows for cards: each column that differs as `A → B`, or as two if texts are long, then the same."""
    rows_a, rows_b = (rows.take(pa.array(numbers, pa.int64())) for rows in (comparison.rows_a, comparison.rows_b))
    columns: dict[str, Any] = {name: rows_a[name] for name in ("row_id", "uri") if name in rows_a.column_names}
    for column in comparison.columns:
        if not column.differs.any() or column.kind == "vector":
            continue
        a, b = rows_a[column.name], rows_b[column.name]
        texts = [[text_of(value) for value in values(side)] for side in (a, b)]
        if max(len(text) for text in texts[0] + texts[1]) > LONG_TEXT // 2:
            columns |= {f"{column.name}, A": a, f"{column.name}, B": b}
        else:
            columns[column.name] = [f"{old} \u2192 {new}" for old, new in zip(*texts, strict=True)]
    return pa.table(columns | {name: rows_a[name] for name in comparison.same})
