"""What identifies a run: its generation, versions, commits, and digests of inputs, settings, models and code."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]
NAMES = {
    "generation": "generation",
    "attempt": "attempt",
    "reason": "reason",
    "scheduled_for": "scheduled for",
    "backfill": "backfill",
    "table_version": "table version",
    "logs": "output of your code",
    "inputs": "digest of the inputs",
    "fingerprint": "fingerprint of settings, models and code",
}
OF_A_RUN = {"generation", "attempt", "reason", "scheduled for", "backfill", "table version", "output of your code"}


@dataclass(frozen=True)
class Fact:
    """A fact about a run, and the same fact about the previous one; empty if it is unknown."""

    name: str
    now: str
    before: str

    @property
    def is_changed(self) -> bool:
        """Return True if the fact of another partition differs, unless each run has a value of its own."""
        return bool(self.before) and self.now != self.before and self.name not in {*OF_A_RUN, NAMES["inputs"]}


def list_facts(record: Record, previous: Record) -> list[Fact]:
    """Return the facts of a receipt, or of the record of a run that did not publish."""
    now, before = dict(_facts(record)), dict(_facts(previous))
    return [Fact(name, value, before.get(name, "")) for name, value in now.items()]


def _facts(record: Record) -> Iterator[tuple[str, str]]:
    for key, name in NAMES.items():
        if record.get(key):
            yield name, str(record[key])
    for name, version in (record.get("versions") or {}).items():
        yield ("commit of the job" if name == "commit" else f"version of {name}"), str(version)
    for name, commit in (record.get("commits") or {}).items():
        yield f"commit of {name}", str(commit or "unknown")
    ingredients = record.get("ingredients") or {}
    for section, files in (("inference", "models"), ("steps", "steps")):
        for number, digests in enumerate(ingredients.get(files) or ()):
            for file, digest in digests.items():
                yield f"{section}.{number}: {file}", str(digest)
