"""Describe in sentences what a comparison shows, for the terminal and the page, and as JSON values."""

from typing import Any

from overnight.flows.compare.columns import Compared
from overnight.flows.compare.comparison import Accuracy, Comparison, OneSided
from overnight.flows.compare.sides import Side
from overnight.flows.report.columns import as_json
from overnight.flows.report.page import number, share
from overnight.tasks.config.masking import masked_in

TITLES = {"trust": "They agree", "look": "Not clear", "no": "They differ"}
OTHER_ROWS = "Other rows"
SMALL_P = 0.001


def level_of(comparison: Comparison) -> str:
    """Return a key of `TITLES`: the interval of the agreement is above, around or below the allowed difference."""
    main, least = comparison.main, 1 - comparison.drawing.difference
    if not comparison.rows or main is None:
        return "look"
    low, high = main.agreement.interval
    if main.agreement.agreeing == comparison.rows == comparison.total or low >= least:
        return "trust"
    return "no" if high < least else "look"


def title_of(comparison: Comparison) -> str:
    return TITLES[level_of(comparison)] if comparison.rows else OTHER_ROWS


def sentences(comparison: Comparison) -> list[str]:
    """Return what a reader must know first, one sentence each."""
    main, accuracy = comparison.main, comparison.accuracy
    if not comparison.rows:
        if comparison.statistics:
            return ["No row is on both sides, so the statistics of the columns are compared."]
        return ["No row is on both sides: nothing can be compared."]
    lines = []
    if main is None:
        lines.append(f"{comparison.rows:,} rows have no column of labels: see the distances.")
    else:
        low, high = main.agreement.interval
        lines.append(
            f"{share(main.agreement.share)} of {comparison.rows:,} rows agree in {main.name} "
            f"(95 % interval: {share(low)} to {share(high)})."
        )
    if accuracy:
        lines.append(_accuracy(accuracy))
    if not comparison.has_enough:
        rows = min(comparison.rows_needed or 0, comparison.total)
        lines.append(f"It takes {rows:,} rows to see a difference of {share(comparison.drawing.difference)}.")
    return lines


def _accuracy(accuracy: Accuracy) -> str:
    a, b = accuracy.a / accuracy.rows, accuracy.b / accuracy.rows
    chance = f"p < {SMALL_P}" if accuracy.p < SMALL_P else f"p = {accuracy.p:.3f}"
    return (
        f"The share of rows equal to {accuracy.truth} is {share(a)} in A and {share(b)} in B: {accuracy.only_a:,} rows "
        f"are right only in A, {accuracy.only_b:,} only in B (McNemar's test: {chance})."
    )


def document(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON values."""
    main = comparison.main
    return {
        "verdict": title_of(comparison),
        "sentences": sentences(comparison),
        "rows": comparison.rows,
        "rows_in_partition": comparison.total,
        "rows_needed": comparison.rows_needed,
        "difference": comparison.drawing.difference,
        "seed": comparison.drawing.seed,
        "column": main.name if main else None,
        "agreement": main.agreement.share if main else None,
        "agreement_interval": list(main.agreement.interval) if main else None,
        "accuracy": _with_p(comparison.accuracy),
        "a": _side(comparison.a, comparison.only_a),
        "b": _side(comparison.b, comparison.only_b),
        "columns": {column.name: _column(column) for column in comparison.columns},
        "columns_without_difference": comparison.same,
        "statistics": [as_json(column) for column in comparison.statistics],
    }


def _with_p(accuracy: Accuracy | None) -> dict[str, Any] | None:
    return vars(accuracy) | {"p": accuracy.p} if accuracy else None


def _side(side: Side, only: OneSided) -> dict[str, Any]:
    return {
        "name": side.name,
        "job": side.job.name,
        "rows_per_second": side.rows_per_second,
        "load_seconds": side.load_seconds,
        "cost_per_1000_rows": side.cost_per_1000,
        "quarantined": masked_in(side.quarantined),
        "only_here": vars(only),
    }


def _column(column: Compared) -> dict[str, Any]:
    result: dict[str, Any] = {"kind": column.kind, "rows_changed": int(column.differs.sum())}
    if column.kind in ("label", "value"):
        result |= {"agreement": column.agreement.share, "interval": list(column.agreement.interval)}
    if column.flips:
        result["flips"] = [{"a": flip.a, "b": flip.b, "rows": flip.rows} for flip in column.flips]
        result["more_flips"] = column.more_flips
    if column.distances:
        quantiles = {f"{quantile:g}": value for quantile, value in column.distances.quantiles.items()}
        result["distances"] = {"rows": column.distances.rows, "mean": column.distances.mean, "quantiles": quantiles}
    return result


def distances_of(column: Compared) -> str:
    """Return the distances of a column as a text: `mean 0.012, median 0.001, ...`."""
    distances = column.distances
    if distances is None:
        return "no distance"
    median, most, nearly_all, largest = map(number, distances.quantiles.values())
    name = "cosine distance" if column.kind == "vector" else "distance"
    return (
        f"{name} of {distances.rows:,} rows: mean {number(distances.mean)}, median {median}, 90 % below {most}, "
        f"99 % below {nearly_all}, largest {largest}"
    )
