"""The publications of a partition: every publish left a receipt. Number 1 is the oldest whose receipt is there."""

from collections.abc import Mapping
from typing import Any

from overnight.tasks.state.run import Run, changed_commits, parse_json
from overnight.tasks.storage.location import Location

COMPARED = ("generation", "fingerprint", "inputs", "commits")  # of an undone publication, in the receipt of its undo


def publications(ledger: Location, job: str) -> list[dict[str, Any]]:
    """Return the receipts of a partition's publishes by this job, the oldest first."""
    folder = ledger / "receipts"
    names = [name for name in folder.names() if name.endswith(".json")]
    receipts = []
    for name, content in folder.read_each(names).items():
        receipt = parse_json(content, folder / name)
        if receipt["job"] == job:
            receipts.append(receipt)
    return sorted(receipts, key=lambda receipt: str(receipt.get("finished_at", "")))


def earlier_publications(run: Run, generation: str) -> list[dict[str, Any]]:
    """Return the receipts of the run's partition, the newest first, without that of the published `generation`."""
    receipts = publications(run.ledger, run.job)
    return [receipt for receipt in reversed(receipts) if receipt["generation"] != generation]


def results_like(receipt: Mapping[str, Any], run: Run) -> list[Mapping[str, Any]]:
    """Return the records of results that `run` would make again: the receipt's, and the records of what it undid.

    The inputs are not compared. A run must not publish again what a user has undone.
    """
    results = []
    for record in (receipt, *undone_records(receipt)):
        if record["fingerprint"] == run.fingerprint and not changed_commits(record, run):
            results.append(record)
    return results


def undone_records(receipt: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the records of the publications that a receipt undid, the newest first."""
    undo = receipt.get("undo")
    return [undo["undone"], *undo.get("undone_before", [])] if undo else []
