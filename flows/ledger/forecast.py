"""Forecast the seconds and the cost of a run, and the seconds that a run has left, with intervals of 80 %.

In: receipts of earlier runs, the rows of the manifest, and what a run under way has done. A run takes a start and an
end, which do not depend on its rows, and its rows over a rate. Its error is log-normal. The spread is that of earlier
receipts, each forecast from the others. Everything here is pure.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import datetime
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np

from overnight.flows.report.spending import is_cost
from overnight.tasks.engine.progress import Interval, Progress

Timings: TypeAlias = np.ndarray
NEWEST = 6  # older receipts count no more: of 14, a machine that other work leaves takes too long to be seen
SHARE = 0.8  # of runs that should end within the interval
SPREAD, SPREAD_WEIGHT = 0.25, 1  # the spread before any receipt is known, which counts as much as one
UNLIKE = 0.7  # the spread between runs of other settings
DRIFT = 0.06  # of the rate between two halves of one run on an idle machine
NOISE = 0.12  # the spread of the rates of windows, before any is known
WINDOWS = 8  # of the run so far, whose rates are compared


# One finished run: its new rows, their rate while the stream ran, all other seconds, those of them after the stream,
# and the bytes and the cost of a row, NaN if unknown.
TIMING = np.dtype([(name, float) for name in ("rows", "rate", "overhead", "ending", "bytes_a_row", "cost_a_row")])


@dataclass(frozen=True)
class Experience:
    """Earlier runs as an array of `TIMING`; `is_alike` if they had the settings of the run to forecast."""

    timings: Timings = field(default_factory=lambda: np.empty(0, TIMING))
    is_alike: bool = True

    def median(self, name: str) -> float | None:
        """Return the median of a field without unknown values; None if no run has one."""
        values = self.timings[name]
        values = values[~np.isnan(values)]
        return float(np.median(values)) if len(values) else None

    @property
    def ending(self) -> float:
        """Return the seconds from the end of a stream to its receipt."""
        seconds = self.median("ending")
        return 1.0 if seconds is None else seconds

    @property
    def spread(self) -> float:
        return SPREAD if self.is_alike else UNLIKE


@dataclass(frozen=True)
class Pace:
    """What a run has done: the `rows` of its last stage after `seconds` of the stream, the oldest first; all rows."""

    moments: Sequence[tuple[float, int]]
    total: int | None


@dataclass
class Forecast:
    """Adds the time left to the progress of one run, whose moments it keeps. `size` is that of its inputs in bytes."""

    earlier: Experience
    size: int | None = None
    moments: list[tuple[float, int]] = field(default_factory=list)

    def added_to(self, progress: Progress) -> Progress:
        """Return `progress` with the time left. The last stage that has begun before the write gives the pace."""
        if progress.is_complete:
            return replace(progress, time_left=None)
        rows = progress.stages[pace_stage(progress)].rows
        self.moments.append((progress.seconds, rows))
        total = progress.total
        if total is None and self.size and self.earlier.median("bytes_a_row"):
            total = expected_rows(self.earlier, self.size)
        return replace(progress, time_left=time_left(self.earlier, Pace(self.moments, total)))


def pace_stage(progress: Progress) -> str:
    """Return the stage whose rows measure a run: that of the models, or the one before the write in a job without."""
    return [stage for stage in progress.stages if stage != "write"][-1]


def experience(receipts: Iterable[Mapping[str, Any]], fingerprint: str = "") -> Experience:
    """Return the timings of the newest whole runs; of those with `fingerprint` alone, if there are any."""
    usable = sorted(filter(_is_usable, receipts), key=lambda receipt: str(receipt.get("finished_at", "")))
    alike = [receipt for receipt in usable if receipt.get("fingerprint") == fingerprint]
    timings = np.array(list(map(_timing, alike or usable)), TIMING)
    return Experience(timings[-NEWEST:], bool(alike) or not fingerprint)


def _is_usable(receipt: Mapping[str, Any]) -> bool:
    rows = receipt.get("rows_in", 0) - receipt.get("rows_resumed", 0)
    if {"retried", "continued"} & receipt.keys():  # only some of the rows ran
        return False
    return rows > 0 and receipt.get("seconds", 0) > 0 and not receipt.get("limit_rows")


def _timing(receipt: Mapping[str, Any]) -> tuple[float, ...]:
    rows, seconds = receipt["rows_in"] - receipt.get("rows_resumed", 0), receipt["seconds"]
    rate = receipt.get("performance", {}).get("rows_per_second_streaming") or rows / seconds
    stream_end = max((stage.get("finished_at") or "" for stage in receipt.get("stages", {}).values()), default="")
    ending = 0.0
    if stream_end and "finished_at" in receipt:
        end = datetime.fromisoformat(receipt["finished_at"])
        ending = max((end - datetime.fromisoformat(stream_end)).total_seconds(), 0.0)
    cost, size = cost_of(receipt), receipt.get("bytes_in") or math.nan
    cost = math.nan if cost is None else cost
    return rows, rate, max(seconds - rows / rate, 0.0), ending, size / receipt["rows_in"], cost / receipt["rows_in"]


def cost_of(receipt: Mapping[str, Any]) -> float | None:
    """Return what the models of a run cost, by the sums of their columns `cost`; None without such a column."""
    costs = []
    for name, column in (receipt.get("columns") or {}).items():
        if is_cost(name, receipt) and column.get("sum") is not None:
            costs.append(float(column["sum"]))
    return sum(costs) if costs else None


def expected_rows(earlier: Experience, size: int | None) -> int | None:
    """Return the rows of a manifest of `size` bytes, by those of earlier runs, or their median number of rows."""
    rows, bytes_a_row = earlier.median("rows"), earlier.median("bytes_a_row")
    if rows is None:
        return None
    if size and bytes_a_row:
        return max(round(size / bytes_a_row), 1)
    return round(rows)


def run_seconds(earlier: Experience, rows: int | None) -> Interval | None:
    """Return the seconds that a run of `rows` rows will take; None without earlier runs.

    If the rows are None, the run may have those of any earlier one.
    """
    timings = earlier.timings
    if not len(timings):
        return None
    likely = float(np.median(timings["rows"])) if rows is None else float(rows)
    errors = []
    for index, timing in enumerate(timings):
        others = np.delete(timings, index)
        if len(others):
            guess = likely if rows is None else timing["rows"]
            errors.append(_seconds(timings[[index]], timing["rows"]) / _seconds(others, guess))
    return _interval(_seconds(timings, likely), np.log(errors), earlier.spread)


def run_cost(earlier: Experience, rows: int | None) -> float | None:
    """Return the cost of a run of `rows` rows by that of a row in earlier runs; None if these had no cost."""
    cost = earlier.median("cost_a_row")
    return None if cost is None or rows is None else rows * cost


def _seconds(timings: Timings, rows: float) -> float:
    return max(float(np.median(timings["overhead"]) + rows / np.median(timings["rate"])), 0.1)


def _interval(seconds: float, errors: Timings, spread: float) -> Interval:
    """Return the interval of 80 % around `seconds` by the logarithmic errors of earlier forecasts."""
    weight = SPREAD_WEIGHT + len(errors)
    variance = (SPREAD_WEIGHT * spread**2 + float(np.square(errors).sum())) / weight
    return around(seconds, math.sqrt(variance), weight)


def sum_of(sample: Sequence[float], count: float) -> Interval:
    """Return the sum of `count` values like those of a sample, as an interval in their unit."""
    values = np.array(sample, float)
    mean = float(values.mean()) if len(values) else 0.0
    if mean <= 0:
        return Interval(0.0, 0.0, 0.0)
    if len(values) < 2:
        return around(mean * count, UNLIKE)
    spread = float(values.std(ddof=1)) / mean / math.sqrt(len(values))
    return around(mean * count, spread, len(values) - 1)


def around(seconds: float, spread: float, degrees: float = math.inf) -> Interval:
    """Return the interval of 80 % around a value, from the spread of its logarithm."""
    factor = math.exp(_quantile(degrees) * spread)
    return Interval(seconds, seconds / factor, seconds * factor)


def _quantile(degrees: float) -> float:
    """Return the quantile of Student's distribution that leaves 80 % in the middle (Cornish and Fisher's series)."""
    z = NormalDist().inv_cdf((1 + SHARE) / 2)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def together(intervals: Sequence[Interval]) -> Interval | None:
    """Return the seconds of several runs one after the other; None without any.

    Half of the variance is common to all of them, such as another load of the machine, and half is of each alone.
    """
    if not intervals:
        return None
    seconds, _, high = np.array(list(map(astuple, intervals))).T
    total, widths = max(float(seconds.sum()), 1e-9), seconds * np.log(high / np.maximum(seconds, 1e-9))
    factor = math.exp(math.sqrt(float(np.square(widths).sum() + widths.sum() ** 2) / 2) / total)
    return Interval(total, total / factor, total * factor)


def time_left(earlier: Experience, pace: Pace) -> Interval | None:
    """Return the seconds to the end of a run under way; None while neither it nor earlier runs have a rate.

    Before the first rows, earlier runs give the seconds, and then both give the rate, weighted by how exact each is.
    """
    if pace.total is None:
        return None
    (_, first), (seconds, rows) = pace.moments[0], pace.moments[-1]
    left = max(pace.total - rows, 0)
    if rows == first:
        whole = run_seconds(earlier, left)
        return whole and whole.after(seconds)
    own, usual = _own_rate(pace.moments, left / max(pace.total, 1)), _usual_rate(earlier)
    rates = list(filter(None, (own, usual)))
    if not rates:
        return None
    logarithms, variances = np.array(rates).T
    rate = math.exp(np.average(logarithms, weights=1 / variances))
    stream = around(left / rate, math.sqrt(1 / float((1 / variances).sum())))
    stream = _without_uncounted(stream, pace, rate)
    ending = around(earlier.ending, earlier.spread)
    return Interval(stream.seconds + ending.seconds, stream.low + ending.low, stream.high + ending.high)


def _without_uncounted(stream: Interval, pace: Pace, rate: float) -> Interval:
    """Return the rest of a stream without the rows that are done and not counted, because a block is counted whole.

    These are the rows since the last count, and between none and all of one more block.
    """
    seconds, rows = np.array(pace.moments, float).T
    since = seconds[-1] - seconds[np.searchsorted(rows, rows[-1])]
    block = min(float(np.diff(rows).max()), max((pace.total or 0) - rows[-1], 0)) / rate
    rest = stream.after(since)
    return Interval(max(rest.seconds - block / 2, 0.0), max(rest.low - block, 0.0), rest.high)


def _usual_rate(earlier: Experience) -> tuple[float, float] | None:
    """Return the logarithm of the rate of earlier runs, and the variance of the next run's; None without runs."""
    rates = earlier.timings["rate"]
    if not len(rates):
        return None
    centre, weight = float(np.log(np.median(rates))), SPREAD_WEIGHT + len(rates) - 1
    squares = float(np.square(np.log(rates) - centre).sum())
    return centre, (SPREAD_WEIGHT * earlier.spread**2 + squares) / weight * (1 + 1 / len(rates))


def _own_rate(moments: Sequence[tuple[float, int]], share_left: float) -> tuple[float, float] | None:
    """Return the logarithm of a run's rate since its first rows, and the variance of the rate to come.

    Return None before three moments with further rows. `share_left` is the fraction of the rows that it has not done.
    """
    seconds, rows = np.array(moments, float).T
    further = np.flatnonzero(rows > rows[0])
    if not len(further) or rows[-1] <= rows[further[0]]:
        return None
    seconds, rows = seconds[further[0] :], rows[further[0] :]
    rates = window_rates(seconds, rows)
    if len(rates) < 2:
        return None
    squares = float(np.square(rates / rates.mean() - 1).sum()) + SPREAD_WEIGHT * NOISE**2
    variation = squares / (SPREAD_WEIGHT + len(rates) - 1)
    to_come = max(len(rates) * share_left / max(1 - share_left, 1e-3), 0.5)  # windows of the same length
    variance = variation / len(rates) + variation / to_come + DRIFT**2
    return math.log((rows[-1] - rows[0]) / (seconds[-1] - seconds[0])), variance


def window_rates(seconds: Timings, rows: Timings) -> Timings:
    """Return the rates in at most `WINDOWS` stretches of about the same number of seconds."""
    bounds = np.linspace(seconds[0], seconds[-1], WINDOWS + 1)
    places = np.unique(np.searchsorted(seconds, bounds - 1e-9))
    lengths = np.diff(seconds[places])
    return (np.diff(rows[places]) / lengths)[lengths > 0]
