"""Forecast the seconds and the cost of a run, and the seconds that a run has left, with intervals of 80 %.

In: receipts of earlier runs, the rows of the manifest, and what a run under way has done. A run takes a start and an
end, which do not depend on its rows, and its rows over a rate. Its error is log-normal. The spread is that of earlier
receipts, each forecast from the others. Everything here is pure.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import NormalDist, mean, median
from typing import Any

from overnight.tasks.engine.progress import Interval, Progress

NEWEST = 14  # older receipts count no more
SHARE = 0.8  # of runs that should end within the interval
SPREAD, SPREAD_WEIGHT = 0.25, 1  # the spread before any receipt is known, which counts as much as one
UNLIKE = 0.7  # the spread between runs of other settings
DRIFT = 0.06  # of the rate between two halves of one run on an idle machine
NOISE = 0.12  # the spread of the rates of windows, before any is known
WINDOWS = 8  # of the run so far, whose rates are compared


@dataclass(frozen=True)
class Timing:
    """One finished run: its new rows, their rate while the stream ran, and all other seconds."""

    rows: int
    rate: float
    overhead: float
    ending: float  # the part of `overhead` after the stream
    bytes_a_row: float | None = None
    cost: float | None = None


@dataclass(frozen=True)
class Experience:
    """Timings of earlier runs; `is_alike` if they had the settings of the run to forecast."""

    timings: tuple[Timing, ...] = ()
    is_alike: bool = True

    @property
    def rate(self) -> float:
        return median(timing.rate for timing in self.timings)

    @property
    def ending(self) -> float:
        """Return the seconds from the end of a stream to its receipt."""
        return median(timing.ending for timing in self.timings) if self.timings else 1.0

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
    """Adds the time left to the progress of one run, whose moments it keeps."""

    earlier: Experience
    moments: list[tuple[float, int]] = field(default_factory=list)

    def added_to(self, progress: Progress) -> Progress:
        """Return `progress` with the time left. The last stage that has begun before the write gives the pace."""
        if progress.is_complete:
            return replace(progress, time_left=None)
        rows = progress.stages[pace_stage(progress)].rows
        self.moments.append((progress.seconds, rows))
        return replace(progress, time_left=time_left(self.earlier, Pace(self.moments, progress.total)))


def pace_stage(progress: Progress) -> str:
    """Return the stage whose rows measure a run: that of the models, or the one before the write in a job without."""
    return [stage for stage in progress.stages if stage != "write"][-1]


def experience(receipts: Iterable[Mapping[str, Any]], fingerprint: str = "") -> Experience:
    """Return the timings of the newest whole runs; of those with `fingerprint` alone, if there are any."""
    usable = [receipt for receipt in receipts if _is_usable(receipt)]
    alike = [receipt for receipt in usable if receipt.get("fingerprint") == fingerprint]
    newest = sorted(alike or usable, key=lambda receipt: str(receipt.get("finished_at", "")))[-NEWEST:]
    return Experience(tuple(map(_timing, newest)), bool(alike) or not fingerprint)


def _is_usable(receipt: Mapping[str, Any]) -> bool:
    rows = receipt.get("rows_in", 0) - receipt.get("rows_resumed", 0)
    return rows > 0 and receipt.get("seconds", 0) > 0 and not receipt.get("limit_rows") and "retried" not in receipt


def _timing(receipt: Mapping[str, Any]) -> Timing:
    rows, seconds = receipt["rows_in"] - receipt.get("rows_resumed", 0), receipt["seconds"]
    rate = receipt.get("performance", {}).get("rows_per_second_streaming") or rows / seconds
    ends = [stage["finished_at"] for stage in receipt.get("stages", {}).values() if stage.get("finished_at")]
    ending = 0.0
    if ends and "finished_at" in receipt:
        ending = (datetime.fromisoformat(receipt["finished_at"]) - datetime.fromisoformat(max(ends))).total_seconds()
    size = receipt.get("bytes_in")
    return Timing(
        rows=rows,
        rate=rate,
        overhead=max(seconds - rows / rate, 0.0),
        ending=max(ending, 0.0),
        bytes_a_row=size / receipt["rows_in"] if size else None,
        cost=cost_of(receipt),
    )


def cost_of(receipt: Mapping[str, Any]) -> float | None:
    """Return what the models of a run cost, by the sums of its columns `cost`; None without such a column."""
    costs = []
    for name, column in (receipt.get("columns") or {}).items():
        if (name == "cost" or name.endswith("_cost")) and column.get("sum") is not None:
            costs.append(float(column["sum"]))
    return sum(costs) if costs else None


def expected_rows(earlier: Experience, size: int | None) -> int | None:
    """Return the rows of a manifest of `size` bytes, by those of earlier runs, or their median number of rows."""
    if not earlier.timings:
        return None
    sizes = [timing.bytes_a_row for timing in earlier.timings if timing.bytes_a_row]
    if size and sizes:
        return max(round(size / median(sizes)), 1)
    return round(median(timing.rows for timing in earlier.timings))


def run_seconds(earlier: Experience, rows: int | None) -> Interval | None:
    """Return the seconds that a run of `rows` rows will take; None without earlier runs.

    If the rows are None, the run may have those of any earlier one.
    """
    timings = earlier.timings
    if not timings:
        return None
    number = rows
    if number is None:
        number = round(median(timing.rows for timing in timings))
    errors = []
    for index, timing in enumerate(timings):
        others = timings[:index] + timings[index + 1 :]
        if others:
            likely = number if rows is None else timing.rows
            errors.append(math.log(_seconds([timing], timing.rows) / _seconds(others, likely)))
    return _interval(_seconds(timings, number), errors, earlier.spread)


def run_cost(earlier: Experience, rows: int | None) -> float | None:
    """Return the cost of a run of `rows` rows by that of a row in earlier runs; None if these had no cost."""
    costs = [timing.cost / timing.rows for timing in earlier.timings if timing.cost is not None]
    if not costs or rows is None:
        return None
    return rows * median(costs)


def _seconds(timings: Sequence[Timing], rows: int) -> float:
    rate, overhead = median(timing.rate for timing in timings), median(timing.overhead for timing in timings)
    return max(overhead + rows / rate, 0.1)


def _interval(seconds: float, errors: Sequence[float], spread: float) -> Interval:
    """Return the interval of 80 % around `seconds` by the logarithmic errors of earlier forecasts."""
    weight = SPREAD_WEIGHT + len(errors)
    variance = (SPREAD_WEIGHT * spread**2 + sum(error**2 for error in errors)) / weight
    return _around(seconds, math.sqrt(variance), weight)


def _around(seconds: float, spread: float, degrees: float = math.inf) -> Interval:
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
    total = sum(interval.seconds for interval in intervals)
    widths = [
        interval.seconds * math.log(max(interval.high, 1e-9) / max(interval.seconds, 1e-9)) for interval in intervals
    ]
    alone = sum(width**2 for width in widths)
    factor = math.exp(math.sqrt((alone + sum(widths) ** 2) / 2) / max(total, 1e-9))
    return Interval(total, total / factor, total * factor)


def time_left(earlier: Experience, pace: Pace) -> Interval | None:
    """Return the seconds to the end of a run under way; None while neither it nor earlier runs have a rate.

    The rate is that of earlier runs and of this run, weighted by how exactly each is known.
    """
    seconds, rows = pace.moments[-1]
    if pace.total is None:
        return None
    rest = max(pace.total - rows, 0)
    rates = []
    if earlier.timings:
        rates.append((math.log(earlier.rate), _rate_variance(earlier)))
    own = _own_rate(pace.moments, rest / max(pace.total, 1))
    if own:
        rates.append(own)
    if not rates:
        return None
    weights = [1 / variance for _, variance in rates]
    logarithm = sum(weight * rate for weight, (rate, _) in zip(weights, rates, strict=True)) / sum(weights)
    spread = math.sqrt(1 / sum(weights))
    stream = _around(rest / math.exp(logarithm), spread)
    start = 0.0
    if own is None:  # the models are still loading
        start = max(median(timing.overhead - timing.ending for timing in earlier.timings) - seconds, 0.0)
    fixed = _around(start + earlier.ending, earlier.spread)
    return Interval(stream.seconds + fixed.seconds, stream.low + fixed.low, stream.high + fixed.high)


def _rate_variance(earlier: Experience) -> float:
    """Return the variance of the next run's logarithmic rate."""
    logarithms = [math.log(timing.rate) for timing in earlier.timings]
    centre = math.log(earlier.rate)
    squares = sum((logarithm - centre) ** 2 for logarithm in logarithms)
    weight = SPREAD_WEIGHT + len(logarithms) - 1
    return (SPREAD_WEIGHT * earlier.spread**2 + squares) / weight * (1 + 1 / len(logarithms))


def _own_rate(moments: Sequence[tuple[float, int]], share_left: float) -> tuple[float, float] | None:
    """Return the logarithm of a run's rate since its first rows, and the variance of the rate to come.

    Return None before three moments with further rows. `share_left` is the fraction of the rows that it has not done.
    """
    start = next((index for index, (_, rows) in enumerate(moments) if rows > moments[0][1]), None)
    if start is None or moments[-1][1] <= moments[start][1]:
        return None
    (first, before), (last, rows) = moments[start], moments[-1]
    rates = window_rates(moments[start:])
    if last <= first or len(rates) < 2:
        return None
    centre = mean(rates)
    variation = sum((rate / centre - 1) ** 2 for rate in rates) + SPREAD_WEIGHT * NOISE**2
    variation /= SPREAD_WEIGHT + len(rates) - 1
    to_come = max(len(rates) * share_left / max(1 - share_left, 1e-3), 0.5)  # windows of the same length
    variance = variation / len(rates) + variation / to_come + DRIFT**2
    return math.log((rows - before) / (last - first)), variance


def window_rates(moments: Sequence[tuple[float, int]]) -> list[float]:
    """Return the rates in at most `WINDOWS` stretches of about the same number of seconds."""
    (first, _), (last, _) = moments[0], moments[-1]
    rates, (since, before) = [], moments[0]
    for seconds, rows in moments[1:]:
        if seconds - since >= (last - first) / WINDOWS - 1e-9 and seconds > since:
            rates.append((rows - before) / (seconds - since))
            since, before = seconds, rows
    return rates
