"""The facts of a progress as texts: one line for logs and the artifact, and the parts of the terminal's screen."""

from collections.abc import Iterator

from overnight.tasks.engine.progress import Interval, Progress

UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def line_of(progress: Progress) -> str:
    """Return all facts in one line, such as `ingest: 10 of 20 rows · infer: 4 of 20 rows, 2.0/s · about 8 s left`."""
    stages = [f"{stage}: {rows_of(progress, stage)}" for stage in progress.stages]
    return " · ".join([*stages, *facts_of(progress).values()])


def facts_of(progress: Progress) -> dict[str, str]:
    """Return what is known beside the rows of the stages, by name: time left, counts, load, last incident, wait."""
    facts = {
        "left": left_of(progress.time_left),
        "rows": ", ".join(_counts(progress)),
        "busy": ", ".join(_load(progress)),
        "last incident": progress.incident and f"last incident: {progress.incident}",
        "waits for": progress.waits_for and f"waits for {progress.waits_for}",
    }
    return {name: text for name, text in facts.items() if text}


def rows_of(progress: Progress, stage: str) -> str:
    """Return the rows of a stage and its rate, such as `10 of 20 rows, 2.0/s`.

    In a complete run, the other rows ended in an earlier stage: `18 rows; 2 ended before it`.
    """
    count, total, rate = progress.stages[stage].rows, progress.total, progress.stages[stage].rate
    if progress.is_complete:
        first = progress.stages["ingest"].rows
        if 0 < count < first:  # with none the job has no such stage
            return f"{count:,} rows; {first - count:,} ended before it"
        return f"{count:,} rows"
    text = f"{count:,} rows" if total is None else f"{min(count, total):,} of {total:,} rows"
    return text if rate is None else f"{text}, {rate_text(rate)}"


def rate_text(rate: float) -> str:
    return f"{rate:,.1f}/s" if rate < 100 else f"{rate:,.0f}/s"


def left_of(interval: Interval | None) -> str:
    """Return the time that is left with its interval, such as `about 3 min left (80 %: 2 min 10 s to 4 min)`."""
    if interval is None:
        return ""
    if round(interval.high) == 0:
        return "it takes longer than forecast"
    low, high = duration(interval.low), duration(interval.high)
    scope = low if low == high else f"{low} to {high}"
    return f"about {duration(interval.seconds)} left (80 %: {scope})"


def duration(seconds: float) -> str:
    """Return seconds in at most two units, such as `42 s`, `3 min 20 s` and `2 h 5 min`."""
    number = round(seconds)
    if number < 60:
        return f"{number} s"
    if number < 3600:
        minutes, number = divmod(number, 60)
        return f"{minutes} min {number} s" if number else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def cost_text(cost: float) -> str:
    """Return an amount of money, such as 0.004212, 98.43 or 12,346."""
    return f"{cost:,.0f}" if abs(cost) >= 1000 else f"{cost:,.4g}"


def bytes_text(size: float) -> str:
    for unit, factor in UNITS:
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size:,.0f} B"


def _counts(progress: Progress) -> Iterator[str]:
    for name in ("resumed", "filtered", "quarantined", "tokens"):
        if count := getattr(progress, name):
            yield f"{count:,} {name}"
    if progress.cost is not None:
        yield f"cost {cost_text(progress.cost)}"


def _load(progress: Progress) -> Iterator[str]:
    load = progress.load
    if (share := load.get("cpus_busy")) is not None:
        yield f"CPUs {100 * share:.0f} % busy"
    if devices := load.get("devices"):
        share = load.get("devices_busy")
        busy = " in use" if share is None else f" {100 * share:.0f} % busy"
        yield f"{devices:g} device{'s' * (devices > 1)}{busy}"
    if size := load.get("memory_bytes"):
        yield f"memory {bytes_text(size)}"
    if size := load.get("object_store_bytes"):
        yield f"object store {bytes_text(size)}"
