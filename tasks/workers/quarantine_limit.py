"""The limit that ends a run as soon as it is certain that too many rows are quarantined.

Rows are named, so that work which Ray does twice counts once, and the set never outgrows the limit. Nothing else
depends on it: the final count comes from the staged parts.
"""

KEPT = 1000  # rows whose reasons are kept, for a run that fails before it has staged them


class QuarantineLimit:
    """Counts distinct quarantined rows. `limit` is the number of rows that may be quarantined."""

    def __init__(self, limit: int, already: int) -> None:
        self._limit, self._already = limit, already
        self._seen: set[tuple[int, int]] = set()
        self._details: dict[tuple[int, int], dict[str, str]] = {}

    def details(self) -> list[dict[str, str]]:
        """The first rows that were told of, each with its reason, as in the quarantine."""
        return list(self._details.values())

    def report(self, units: list[int], numbers: list[int], details: list[dict[str, str]]) -> str | None:
        """Notes rows of a stage; returns why to stop, once it is certain.

        details: of the first of these rows, one at least: what the quarantine says of them.
        """
        rows = list(zip(units, numbers, strict=True))
        self._seen.update(rows)
        for row, told in zip(rows, details, strict=False):
            if len(self._details) < KEPT:
                self._details.setdefault(row, told)
        found = len(self._seen) + self._already
        if found <= self._limit:
            return None
        first = next(iter(self._details.values()))
        return (
            f"at least {found} rows are quarantined; checks.max_quarantined allows {self._limit} of this partition. "
            "Correct what fails, or allow more. "
            f"The first: {first['row_id']} in {first['stage']}: {first['error_type']}: {first['error_message']}"
        )
