"""The limit that ends a run as soon as it is certain that too many rows are quarantined.

Rows are named, so that work which Ray does twice counts once, and the set never outgrows the limit. Nothing else
depends on it: the final count comes from the staged parts.
"""


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
