"""The end of a run in one sentence: the message of its state, which the Prefect UI and the log show."""

from collections.abc import Mapping, Sequence
from typing import Any

from overnight.tasks.config.masking import masked
from overnight.tasks.errors import OvernightError, first_line
from overnight.tasks.rows import reasons

LONGEST = 300


def published(receipt: Mapping[str, Any], why: Sequence[tuple[str, int]]) -> str:
    """Return the counts, the reasons of quarantined rows and the seconds of a run that published, as one sentence.

    `why` has each reason with its number of rows, the most frequent first.
    """
    rows = _rows(receipt["rows_out"])
    first = f"sample of {rows}, nothing published" if receipt["limit_rows"] else f"{rows} published"
    warnings = len(receipt.get("warnings", []))
    parts = [
        first,
        *_counts(receipt, why),
        "checks passed",
        *([f"{warnings} warning{'s' * (warnings > 1)}"] if warnings else []),
        f"{receipt['seconds']:,.1f} s",
    ]
    return ", ".join(parts)


def unchanged(receipt: Mapping[str, Any], is_retry: bool) -> str:
    """Return why a run has nothing to do: its partition is published and not stale.

    If `is_retry`, the run was for the quarantined rows only, and the reason is that there are no such rows.
    """
    why = "without quarantined rows" if is_retry else "and not stale"
    counts = ", ".join([_rows(receipt["rows_out"]), *_counts(receipt, [])])
    return f"nothing to run: {receipt['partition']} is published {why}, since {receipt['finished_at']} ({counts})"


def searched(result: Mapping[str, Any]) -> str:
    """Return the number of matches, the searched rows and the seconds of a search, as one sentence."""
    partitions = len(result["partitions"])
    where = f"{_rows(result['rows'])} of {partitions:,} partition{'s' * (partitions != 1)}"
    return f"{len(result['matches']):,} similar rows found in {where}, {result['seconds']:,.1f} s"


def failed(error: OvernightError) -> str:
    """Return the failed stage and the first sentence of the error, for a run that failed, in at most 300 characters."""
    where = f" in {error.stage}" if error.stage else ""
    sentence = f"{error.status}{where}: {first_line(error.message) or error.error_type}"
    sentence = masked(sentence)  # first: half a secret has no form
    return sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 1]}…"


def _counts(receipt: Mapping[str, Any], why: Sequence[tuple[str, int]]) -> list[str]:
    filtered, quarantined = receipt["rows_filtered"], receipt["rows_quarantined"]
    told = f" ({reasons.told(why)})" if why else ""
    return [
        *([f"{filtered:,} filtered"] if filtered else []),
        *([f"{quarantined:,} quarantined{told}"] if quarantined else []),
    ]


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
