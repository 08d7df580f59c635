"""Fill the log of answers by batches: upload each part, create its batch, look at it, and write down its answers.

Every state is in the files of `Parts`, so any process can go on at any moment. A create is never repeated before the
provider's list has been searched for its batch for `SEARCH_SECONDS`. What no batch answers is left to the stream.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from overnight.tasks.errors import AccessDenied, JobError
from overnight.tasks.infer.batch import parts as states
from overnight.tasks.infer.batch.collection import Collected, Collection
from overnight.tasks.infer.batch.connection import Gone
from overnight.tasks.infer.batch.parts import Part, Parts
from overnight.tasks.infer.batch.provider import Batch, Phase, Provider
from overnight.tasks.infer.batch.settings import BatchSettings
from overnight.tasks.infer.endpoint.faults import Blame, Fault
from overnight.tasks.state.run import write_json

SEARCH_SECONDS = 300.0  # a provider may show a new batch, or results, late
SKEW_SECONDS = 3600.0  # between the clocks of this machine and the provider
HOLD_SECONDS = 600.0  # until a part is offered again for which the provider had no room
CANCEL_SECONDS = 900.0  # providers take up to ten minutes
SECONDS_AT_CANCEL = 8.0  # while a user waits for the end of the run
MOST_TRIES = 3


@dataclass(frozen=True)
class Clock:
    """The time of the run: seconds since 1970, and a wait that an interruption of the run ends."""

    now: Callable[[], float] = time.time
    pause: Callable[[float], None] = time.sleep


@dataclass
class Filling:
    """The batches of one run. `guard` raises if another run holds the partition, and `warn` reports a sentence."""

    parts: Parts
    provider: Provider
    collection: Collection
    settings: BatchSettings
    clock: Clock = Clock()
    deadline: float | None = None
    guard: Callable[[], None] = lambda: None
    warn: Callable[[str], None] = print
    is_late: bool = False
    is_held: bool = False  # by a provider without room, which the user knows
    waits: dict[str, str] = field(default_factory=dict)  # part -> the fault of its last try
    items: dict[str, Part] = field(default_factory=dict)  # by name

    def __post_init__(self) -> None:
        self.items = {part.name: part for part in self.parts.all()}

    def run(self, show: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
        """Return when every part has ended. Write and return the record for the receipt."""
        while self.turn():
            show(self.progress())
            self.clock.pause(self._seconds_to_next_look())
        self._collect_strays()
        return self._record()

    def turn(self) -> bool:
        """Do for each part what can be done now. Return False if all parts have ended."""
        self.guard()
        if self.deadline is not None and self.clock.now() >= self.deadline and not self.is_late:
            self.is_late = True
            self.warn("batch: finish_by has come; the rows without an answer are requested outside batches")
        for part in list(self.items.values()):
            self._try(part)
        return any(part.state != states.DONE for part in self.items.values())

    def _seconds_to_next_look(self) -> float:
        seconds = self.settings.poll_seconds
        if self.deadline is not None and not self.is_late:
            seconds = min(seconds, max(self.deadline - self.clock.now(), 1.0))
        return seconds

    def progress(self) -> str:
        parts = list(self.items.values())
        done = sum(part.state == states.DONE for part in parts)
        open_parts = sum(part.state == states.CREATED for part in parts)
        text = f"batches: {done:,} of {len(parts):,} parts done, {open_parts:,} at the provider"
        faults = list(self.waits.values())
        return f"{text}; {faults[0]}" if faults else text

    def cancel(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Cancel the open batches, and write down what they have answered, if they end in a few seconds.

        Otherwise the next run does so.
        """
        self.guard()
        for part in list(self.items.values()):
            if part.state == states.CREATING:
                self._act(part, self._find)
            if part.state == states.CREATED:
                self._act(part, self._cancel)
        end = self.clock.now() + SECONDS_AT_CANCEL
        while self.clock.now() < end:
            waiting = [part for part in self.items.values() if part.state == states.CREATED]
            if not waiting:
                return
            for part in waiting:
                self._act(part, self._look)
            pause(1.0)

    def _try(self, part: Part) -> None:
        steps: dict[str, Callable[[Part], None]] = {
            states.SEALED: self._upload,
            states.UPLOADING: self._find_upload,
            states.UPLOADED: self._create,
            states.CREATING: self._find,
            states.CREATED: self._look,
        }
        while part.state in steps:
            before = part.state
            if not self._act(part, steps[before]) or part.state in (before, states.CREATED):
                return

    def _act(self, part: Part, step: Callable[[Part], None]) -> bool:
        """Do a step. Return False after a fault that passes by itself. Raise the error of another one."""
        self.waits.pop(part.name, None)
        try:
            step(part)
        except Fault as fault:
            if not fault.passes:
                kind = AccessDenied if fault.blame is Blame.KEY else JobError
                raise kind(f"batch: {fault.sentence}", "infer") from None
            self.waits[part.name] = fault.sentence
            return False
        return True

    def _upload(self, part: Part) -> None:
        if self._has_ended_late(part) or not self._has_room(part):
            return
        part.state = states.UPLOADING
        self._save(part)
        self._uploaded(part, self.provider.upload(self.parts.file_name(part), self.parts.requests(part)))

    def _find_upload(self, part: Part) -> None:
        file = self.provider.find_file(self.parts.file_name(part))
        if file:
            self._uploaded(part, file)
            return
        part.state = states.SEALED
        self._save(part)

    def _uploaded(self, part: Part, file: str) -> None:
        part.state, part.file = states.UPLOADED, file
        self._save(part)

    def _create(self, part: Part) -> None:
        if self._has_ended_late(part) or not self._has_room(part):
            return
        part.state, part.batch, part.cancelled_at, part.missed_at = states.CREATING, "", 0.0, 0.0
        part.intended_at = self.clock.now()
        part.creates += 1
        self._save(part)
        try:
            batch = self.provider.create(part.file, self.parts.label(part))
        except Fault as fault:
            if fault.blame is Blame.SERVER:
                raise  # the batch may exist
            part.creates -= 1
            self._refused(part, fault)
            raise
        self._created(part, batch)

    def _refused(self, part: Part, fault: Fault) -> None:
        part.state = states.SEALED
        if fault.passes:
            part.state = states.UPLOADED
            part.not_before = self.clock.now() + (fault.retry_after or self.settings.poll_seconds)
        self._save(part)

    def _created(self, part: Part, batch: Batch) -> None:
        part.state, part.batch = states.CREATED, batch.id
        self._save(part)

    def _find(self, part: Part) -> None:
        """Search the batch of a create without an answer. Create another one if it does not appear."""
        ids = self._batches_known()
        for batch in self.provider.batches(part.intended_at - SKEW_SECONDS):
            if batch.id not in ids and self._is_of(batch, part):
                self._created(part, batch)
                return
        if self.clock.now() >= part.intended_at + SEARCH_SECONDS:
            part.state = states.UPLOADED
            self._save(part)

    def _look(self, part: Part) -> None:
        try:
            batch = self.provider.look(part.batch)
        except Gone:
            if not self._is_missed_for_long(part):
                return
            batch = self._forgotten(part.batch, part)
        if batch.phase is Phase.FAILED:
            self._failed(part, batch)
        elif batch.phase is Phase.ENDED:
            self._collect(part, batch)
        elif self.is_late and not part.cancelled_at:
            self._cancel(part)
        elif self.is_late and self.clock.now() >= part.cancelled_at + CANCEL_SECONDS:
            self.warn(f"batch: {batch.id} does not end; up to {part.rows:,} requests of it may be paid twice")
            self._leave(part, part.rows)

    def _forgotten(self, id: str, part: Part) -> Batch:
        self.warn(f"batch: the provider has no batch {id} any more; its {part.rows:,} requests may be paid")
        return Batch(id, "forgotten", Phase.ENDED, completed=part.rows)

    def _is_missed_for_long(self, part: Part) -> bool:
        """Return True at the end of `SEARCH_SECONDS`: a provider may show a batch and its results late."""
        if not part.missed_at:
            part.missed_at = self.clock.now()
            self._save(part)
        return self.clock.now() >= part.missed_at + SEARCH_SECONDS

    def _cancel(self, part: Part) -> None:
        try:
            self.provider.cancel(part.batch)
        except Fault as fault:
            if fault.passes or fault.blame is Blame.KEY:
                raise
        part.cancelled_at = self.clock.now()
        self._save(part)

    def _failed(self, part: Part, batch: Batch) -> None:
        """Offer the part again later if too many tokens wait. Otherwise raise `JobError`; a later run uploads it."""
        self._note(part, batch, Collected())
        part.state = states.SEALED
        if batch.is_full:
            part.state = states.UPLOADED
            part.not_before = self.clock.now() + HOLD_SECONDS
            if not self.is_held:
                self.is_held = True
                self.warn(
                    f"batch: the provider had no room for {part.rows:,} requests: {batch.problem}. They wait and are "
                    "offered again. If no other batch is under way, set enqueued_tokens to the provider's limit"
                )
        self._save(part)
        if not batch.is_full:
            raise JobError(f"batch: the provider refused the requests of {batch.id}: {batch.problem}", "infer")

    def _collect(self, part: Part, batch: Batch) -> None:
        keys = set(map(states.key_in, self.parts.requests(part).splitlines()))
        results = self._collected(part, batch, keys)
        is_incomplete = results.lost(batch) or results.lost_files
        if is_incomplete and not self._is_missed_for_long(part):
            return
        self._note(part, batch, results)
        self.guard()
        missing = keys - results.answered - results.refused
        tries = part.tries + (batch.state != "cancelled")
        if missing and self.settings.then == "again" and not self.is_late and tries <= MOST_TRIES:
            rest = self.parts.seal_rest(part, missing, tries)
            self.items[rest.name] = rest
            part.rest = rest.name
            missing = set()
        self._leave(part, len(missing) + len(results.refused))

    def _collected(self, part: Part, batch: Batch, keys: set[str]) -> Collected:
        """Write the answers of a batch into the log. A second call replaces them."""
        return self.collection.collect(batch, f"{part.name}-{len(part.batches)}", keys)

    def _note(self, part: Part, batch: Batch, results: Collected) -> None:
        """Add a batch that has ended to the part's record."""
        record = {"id": batch.id, "state": batch.state, "requests": part.rows}
        part.batches.append(record | results.counts(batch.completed))
        for sentence in results.warnings(batch):
            self.warn(f"batch {batch.id}: {sentence}")

    def _save(self, part: Part) -> None:
        self.guard()  # a later run may have written the record since
        self.parts.save(part)

    def _leave(self, part: Part, rows: int) -> None:
        part.state, part.left = states.DONE, rows
        self._save(part)

    def _has_ended_late(self, part: Part) -> bool:
        if self.is_late:
            self._leave(part, part.rows)
        return self.is_late

    def _has_room(self, part: Part) -> bool:
        """Return True if the provider may take the part now."""
        if self.clock.now() < part.not_before:
            self.waits[part.name] = "the provider had no room for a part, which waits"
            return False
        most = self.settings.enqueued_tokens
        waiting = [other.tokens for other in self.items.values() if other.state in (states.CREATING, states.CREATED)]
        return most is None or not waiting or sum(waiting) + part.tokens <= most

    def _batches_known(self) -> set[str]:
        ids = set()
        for part in self.items.values():
            ids.update({part.batch, *(batch["id"] for batch in part.batches)})
        return ids

    def _is_of(self, batch: Batch, part: Part) -> bool:
        return batch.label == self.parts.label(part) or (bool(part.file) and batch.file == part.file)

    def _collect_strays(self) -> None:
        """End the batches of creates that seemed lost, and count what they have cost."""
        suspects = [part for part in self.items.values() if part.creates > len(part.batches)]
        if not suspects:
            return
        ids = self._batches_known()
        since = self.parts.sealed_at() - SKEW_SECONDS
        strays = {batch.id: batch for batch in self._until_answered(lambda: list(self.provider.batches(since)))}
        for batch in strays.values():
            for part in suspects:
                if batch.id not in ids and self._is_of(batch, part):
                    self._collect_stray(part, batch)

    def _collect_stray(self, part: Part, batch: Batch) -> None:
        if batch.phase is Phase.OPEN:
            with contextlib.suppress(Fault):  # it may have ended just now
                self.provider.cancel(batch.id)
        end = self.clock.now() + CANCEL_SECONDS
        while batch.phase is Phase.OPEN and self.clock.now() < end:
            self.clock.pause(self.settings.poll_seconds)
            batch = self._until_answered(partial(self._stray_now, part, batch.id))
        keys = set(map(states.key_in, self.parts.requests(part).splitlines()))
        results = self._until_answered(lambda: self._collected(part, batch, keys))
        self._note(part, batch, results)
        self._save(part)
        self.warn(f"batch: {batch.id} was made by a create without an answer, beside another batch of the same rows")

    def _stray_now(self, part: Part, id: str) -> Batch:
        try:
            return self.provider.look(id)
        except Gone:
            return self._forgotten(id, part)

    def _until_answered(self, act: Callable[[], Any]) -> Any:
        """Return the result of an act that may be repeated, once it has no fault that passes by itself."""
        while True:
            try:
                return act()
            except Fault as fault:
                if not fault.passes:
                    raise JobError(f"batch: {fault.sentence}", "infer") from None
                self.clock.pause(fault.retry_after or self.settings.poll_seconds)

    def _record(self) -> dict[str, Any]:
        """Write what the batches did and cost: `repeated` counts requests that were charged without a new answer."""
        parts = [self.items[name] for name in sorted(self.items)]
        batches = [batch for part in parts for batch in part.batches]
        charged = sum(batch["charged"] for batch in batches)
        answered = self.collection.count_answers()
        record = {
            "dialect": self.settings.dialect,
            "requests": sum(part.rows for part in parts if "." not in part.name),
            "answered": answered,
            "charged": charged,
            "repeated": charged - answered,
            "left": sum(part.left for part in parts),
            "batches": batches,
        }
        write_json(self.parts.folder / "record.json", record)
        if record["repeated"]:
            self.warn(f"batch: {record['repeated']:,} of {charged:,} requests were charged without a new answer")
        return record
