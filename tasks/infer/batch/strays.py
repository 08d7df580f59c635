"""Find the batches of creates that had no answer, by their label, their file, or a row in their results."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from overnight.tasks.errors import JobError
from overnight.tasks.infer.batch.connection import Gone
from overnight.tasks.infer.batch.parts import Part
from overnight.tasks.infer.batch.provider import Batch, Phase, Provider
from overnight.tasks.infer.batch.records import SKEW_SECONDS, Clock, Records
from overnight.tasks.infer.endpoint.faults import Fault

CANCEL_SECONDS = 900.0  # providers take up to ten minutes


@dataclass
class Matches:
    """The batches of a part that no record has. Each of `candidates` may be one; its results will show it."""

    batches: list[Batch] = field(default_factory=list)
    candidates: list[Batch] = field(default_factory=list)


@dataclass(frozen=True)
class Strays:
    """The search for batches. `poll_seconds` are between two looks at one."""

    records: Records
    provider: Provider
    clock: Clock
    poll_seconds: float

    def find(self, part: Part, since: float) -> Matches:
        """Return the unknown batches of a part that were created after a moment of this machine's clock."""
        matches, ids = Matches(), self.records.batch_ids()
        for batch in self.provider.batches(since - SKEW_SECONDS):
            if batch.id in ids:
                continue
            if batch.label is not None:
                if batch.label == self.records.parts.label(part) or (part.file and batch.file == part.file):
                    matches.batches.append(batch)
            elif batch.rows != part.rows:
                continue
            elif batch.phase is Phase.OPEN:
                matches.candidates.append(batch)
            elif self._has_rows_of(batch, part):
                matches.batches.append(batch)
        return matches

    def collect(self) -> None:
        """End the batches of creates that seemed lost, and count what they have cost."""
        for part in list(self.records.items.values()):
            if part.creates > len(part.batches):
                for batch in self._strays_of(part):
                    self._collect(part, batch)

    def _has_rows_of(self, batch: Batch, part: Part) -> bool:
        """Return True if the batch has rows of the part. One that charged, without a result to read, counts as such."""
        with contextlib.suppress(Gone):
            for results in batch.results:
                for result in self.provider.results(results):
                    if result:
                        return result.key in self.records.keys(part)
        return bool(batch.completed)

    def _strays_of(self, part: Part) -> list[Batch]:
        since, end = self.records.parts.sealed_at(), self.clock.now() + CANCEL_SECONDS
        matches = self._until_answered(lambda: self.find(part, since))
        while matches.candidates and self.clock.now() < end:
            self.clock.pause(self.poll_seconds)
            matches = self._until_answered(lambda: self.find(part, since))
        if matches.candidates:
            names = ", ".join(batch.id for batch in matches.candidates[:5])
            self.records.warn(
                f"batch: a create had no answer, and {names} may be its batch; up to {part.rows:,} requests of it may "
                "be paid twice"
            )
        return list(matches.batches)

    def _collect(self, part: Part, batch: Batch) -> None:
        if batch.phase is Phase.OPEN:
            with contextlib.suppress(Fault):  # it may have ended just now
                self.provider.cancel(batch.id)
        end = self.clock.now() + CANCEL_SECONDS
        while batch.phase is Phase.OPEN and self.clock.now() < end:
            self.clock.pause(self.poll_seconds)
            batch = self._until_answered(partial(self._now, part, batch.id))
        keys = self.records.keys(part)
        results = self._until_answered(lambda: self.records.collected(part, batch, keys))
        self.records.note(part, batch, results)
        self.records.save(part)
        self.records.warn(
            f"batch: {batch.id} was made by a create without an answer, beside another batch of the same rows"
        )

    def _now(self, part: Part, id: str) -> Batch:
        try:
            return self.provider.look(id)
        except Gone:
            return self.records.forgotten(id, part)

    def _until_answered(self, act: Callable[[], Any]) -> Any:
        """Return the result of an act that may be repeated, once it has no fault that passes by itself."""
        while True:
            try:
                return act()
            except Fault as fault:
                if not fault.passes:
                    raise JobError(f"batch: {fault.sentence}", "infer") from None
                self.clock.pause(fault.retry_after or self.poll_seconds)
