"""States of jobs, written by hand: receipts, failures, and the facts of reports."""

import json
from pathlib import Path
from typing import Any

from overnight.flows.history.history import read_history
from overnight.flows.history.lines import Line
from overnight.tasks.storage.location import Location
from tests.flows.report.runs import receipt_of

SETTINGS = {"settings": {"preprocess": [], "inference": [{"kind": "python", "kwargs": {"crop": 4}}]}}
FILES = {"models": [{"linear.py": "c1", "kwargs.weights": "w1"}], "steps": []}


def receipt(day: str, rate: float = 100.0, **more: Any) -> dict[str, Any]:
    """Return a receipt of 1,000 rows, with the settings and files of a small model."""
    counts = {"rows_in": 1000, "rows_out": 1000, "rows_quarantined": 0, "seconds": 12.5, "bytes_in": 10**6}
    record = receipt_of(day, performance={"rows_per_second_streaming": rate}, **counts)
    ingredients = {"settings": SETTINGS["settings"], **FILES, "format_version": 1}
    return {**record, "fingerprint": "f1", "ingredients": ingredients, "versions": {"torch": "2.0"}, **more}


def publish(state: Path, record: dict[str, Any], agreement: float | None = None, report: str = "page") -> None:
    """Write what a run that published leaves of it."""
    name = "all" if record["partition"] == "all" else f"date={record['partition']}"
    ledger, generation = state / name, record["generation"]
    attempt = ledger / "generations" / generation / "attempts" / record["attempt"]
    for folder in (ledger / "receipts", ledger / "reports", attempt):
        folder.mkdir(parents=True, exist_ok=True)
    (attempt / "timeline").write_text("{}")
    facts = {"verdict": "trust", "sentence": f"Trust {record['partition']}.", "agreement": agreement}
    (ledger / f"reports/{generation}.json").write_text(json.dumps(facts))
    for path in (f"reports/{generation}.html", "report.html"):
        (ledger / path).write_text(report)
    for path in (f"receipts/{generation}.json", "receipt.json"):
        (ledger / path).write_text(json.dumps(record))


def fail(state: Path, day: str, message: str, job: str = "daily") -> None:
    ledger = state / f"date={day}"
    ledger.mkdir(parents=True, exist_ok=True)
    failure = {"job": job, "partition": day, "status": "failed", "stage": "infer", "error_type": "ValueError"}
    failure |= {"error_message": message, "failed_at": f"{day}T03:00:00.000Z", "attempt": "b", "generation": "g"}
    (ledger / "failure.json").write_text(json.dumps(failure))
    (ledger / "report.html").write_text("the page of a failure")


def lines_of(folder: Path, *records: tuple[dict[str, Any], float | None]) -> list[Line]:
    """Return the lines of receipts, each with the agreement of its report, on days one after another."""
    for number, (record, agreement) in enumerate(records, 1):
        day = f"2026-01-{number:02}"
        publish(folder, {**record, "partition": day, "generation": f"g{number:02}"}, agreement)
    return list(read_history(Location(str(folder))).lines)
