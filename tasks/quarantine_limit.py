"""Ends a run as soon as it is certain that too many rows are quarantined, rather than in the morning.

The write starts one small actor that holds the limit; a stage that quarantines rows tells it which, and is told when to
stop. Rows are named, so that work which Ray does twice counts once, and the set never outgrows the limit. Nothing
else depends on it: the final count comes from the staged parts.
"""

import pyarrow as pa

from tasks import rows
from tasks.errors import TooManyQuarantined


class QuarantineLimit:
    """Counts distinct quarantined rows. `limit` is the number of rows that may be quarantined."""

    def __init__(self, limit: int, already: int) -> None:
        self._limit, self._already = limit, already
        self._seen: set[tuple[int, int]] = set()
        self._first: dict[str, str] = {}

    def report(self, units: list[int], numbers: list[int], sample: dict[str, str]) -> str | None:
        """Notes rows of a stage; returns why to stop, once it is certain."""
        self._first = self._first or sample
        self._seen.update(zip(units, numbers, strict=True))
        found = len(self._seen) + self._already
        if found <= self._limit:
            return None
        return (
            f"at least {found} rows are quarantined; checks.max_quarantined allows {self._limit} of this partition. "
            f"The first: {self._first['row_id']} in {self._first['stage']}: "
            f"{self._first['error_type']}: {self._first['error_message']}"
        )


def actor_name(generation: str, attempt: str) -> str:
    return f"overnight-quarantine-{generation}-{attempt}"


def report(block: pa.Table, before: pa.Table | None, name: str) -> None:
    """Tells the limit which rows of `block` were quarantined since `before`. Raises `TooManyQuarantined`.

    Without a running write (when a sample is tried) nothing listens and nothing happens.
    """
    states = block["__state"].to_numpy() == rows.QUARANTINED
    if before is not None:
        states = states & (before["__state"].to_numpy() != rows.QUARANTINED)
    if not states.any():
        return
    import ray

    try:
        limit = ray.get_actor(name)
    except ValueError:
        return
    new = block.filter(pa.array(states))
    first = {
        key: str(new[column][0].as_py())
        for key, column in (
            ("row_id", "row_id"),
            ("stage", "__stage"),
            ("error_type", "__error_type"),
            ("error_message", "__error_message"),
        )
    }
    stop = ray.get(limit.report.remote(new["__unit"].to_pylist(), new["__row"].to_pylist(), first))
    if stop:
        raise TooManyQuarantined(stop)
