"""What identifies a run: its generation, versions, commits, and digests of inputs, settings, models and code."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]
# Each run has values of its own.
OF_A_RUN = {
    "generation": "generation",
    "attempt": "attempt",
    "reason": "reason",
    "scheduled_for": "scheduled for",
    "backfill": "backfill",
    "table_version": "table version",
    "logs": "output of your code",
    "inputs": "digest of the inputs",
}


@dataclass(frozen=True)
class Fact:
    """A fact about a run. `before` is the same fact about the previous run if it changed since."""

    name: str
    now: str
    before: str = ""


def list_facts(record: Record, previous: Record) -> list[Fact]:
    """Return the facts of a receipt, or of the record of a run that did not publish."""
    facts = [Fact(name, str(record[key])) for key, name in OF_A_RUN.items() if record.get(key)]
    earlier = dict(_comparable(previous))
    for name, now in _comparable(record):
        before = earlier.get(name, now)
        facts.append(Fact(name, now, before if before != now else ""))
    return facts


def _comparable(record: Record) -> Iterator[tuple[str, str]]:
    if record.get("fingerprint"):
        yield "fingerprint of settings, models and code", str(record["fingerprint"])
    for name, version in (record.get("versions") or {}).items():
        yield ("commit of the job" if name == "commit" else f"version of {name}"), str(version)
    for name, commit in (record.get("commits") or {}).items():
        yield f"commit of {name}", str(commit or "unknown")
    ingredients = record.get("ingredients") or {}
    for section, files in (("inference", "models"), ("steps", "steps")):
        for number, digests in enumerate(ingredients.get(files) or ()):
            for file, digest in digests.items():
                yield f"{section}.{number}: {file}", str(digest)
