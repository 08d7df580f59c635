"""A run in a folder of the test's own."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location


def make_run(place: Path | str, partition: str = "2026-01-02", **changes: Any) -> Run:
    """An attempt whose sink is `<place>/out`, with every field that is not given filled in."""
    sink = Location(f"{place}/out")
    known: dict[str, Any] = {
        "job": "job", "partition": partition, "partition_column": "date", "state": sink / "_overnight", "sink": sink,
        "generation": "generation", "attempt": "20260102T000000-aaaaaa", "fingerprint": "f", "ingredients": {},
        "started_at": "2026-01-02T00:00:00.000Z",
    }  # fmt: skip
    known |= changes
    return Run(**{field.name: known[field.name] for field in fields(Run) if field.name in known})
