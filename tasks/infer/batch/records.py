"""The records of a run's parts: what their batches did, and which rows have answers."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from overnight.tasks.infer.batch import parts as states
from overnight.tasks.infer.batch.collection import Collected, Collection
from overnight.tasks.infer.batch.parts import Part, Parts
from overnight.tasks.infer.batch.provider import Batch, Phase
from overnight.tasks.state.run import write_json

SKEW_SECONDS = 3600.0  # between the clocks of this machine and the provider


@dataclass(frozen=True)
class Clock:
    """The time of the run: seconds since 1970, and a wait that an interruption of the run ends."""

    now: Callable[[], float] = time.time
    pause: Callable[[float], None] = time.sleep


@dataclass
class Records:
    """The parts of one run. `guard` raises if another run holds the partition, and `warn` reports a sentence."""

    parts: Parts
    collection: Collection
    guard: Callable[[], None] = lambda: None
    warn: Callable[[str], None] = print
    items: dict[str, Part] = field(default_factory=dict)  # by name

    def __post_init__(self) -> None:
        self.items = {part.name: part for part in self.parts.all()}

    def save(self, part: Part) -> None:
        self.guard()  # a later run may have written the record since
        self.parts.save(part)

    def end(self, part: Part) -> None:
        """End a part. Its rows without an answer are left to the stream."""
        part.state = states.DONE
        self.save(part)

    def keys(self, part: Part) -> set[str]:
        return set(map(states.key_in, self.parts.requests(part).splitlines()))

    def collected(self, part: Part, batch: Batch, keys: set[str]) -> Collected:
        """Write the answers of a batch into the log. A second call replaces them."""
        reuse_keys = self.parts.reuse_keys(part)
        return self.collection.collect(batch, f"{part.name}-{len(part.batches)}", keys, reuse_keys)

    def note(self, part: Part, batch: Batch, results: Collected) -> None:
        """Add a batch that has ended to the part's record."""
        record = {"id": batch.id, "state": batch.state, "requests": part.rows}
        part.batches.append(record | results.counts(batch.completed))
        for sentence in results.warnings(batch):
            self.warn(f"batch {batch.id}: {sentence}")

    def forgotten(self, id: str, part: Part) -> Batch:
        """Return a batch that the provider does not have any more."""
        self.warn(f"batch: the provider has no batch {id} any more; its {part.rows:,} requests may be paid")
        return Batch(id, "forgotten", Phase.ENDED, completed=part.rows)

    def batch_ids(self) -> set[str]:
        ids = set()
        for part in self.items.values():
            ids.update({part.batch, *(batch["id"] for batch in part.batches)})
        return ids

    def written(self, dialect: str) -> dict[str, Any]:
        """Write what the batches did and cost: `repeated` counts requests that were charged without a new answer.

        `left` counts the rows that the stream requests.
        """
        parts = [self.items[name] for name in sorted(self.items)]
        batches = [batch for part in parts for batch in part.batches]
        charged = sum(batch["charged"] for batch in batches)
        requests = sum(part.rows for part in parts if "." not in part.name)
        answered = self.collection.count_answers()
        record = {
            "dialect": dialect,
            "requests": requests,
            "answered": answered,
            "charged": charged,
            "repeated": charged - answered,
            "left": requests - answered,
            "batches": batches,
        }
        write_json(self.parts.folder / "record.json", record)
        if record["repeated"]:
            self.warn(f"batch: {record['repeated']:,} of {charged:,} requests were charged without a new answer")
        return record
