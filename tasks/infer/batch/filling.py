"""Fill the log of answers by batches: upload each part, create its batch, look at it, and write down its answers.

Every state is in the files of `Parts`, so any process can go on at any moment. A create is never repeated before the
provider's list has been searched for its batch for `SEARCH_SECONDS`. What no batch answers is left to the stream.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from overnight.tasks.errors import AccessDenied, BudgetReached, JobError
from overnight.tasks.infer.batch import parts as states
from overnight.tasks.infer.batch.cap import Cap
from overnight.tasks.infer.batch.collection import Collected
from overnight.tasks.infer.batch.connection import Gone
from overnight.tasks.infer.batch.parts import Part
from overnight.tasks.infer.batch.provider import Batch, Phase, Provider
from overnight.tasks.infer.batch.records import Clock, Records
from overnight.tasks.infer.batch.settings import BatchSettings
from overnight.tasks.infer.batch.strays import CANCEL_SECONDS, Strays
from overnight.tasks.infer.endpoint.faults import Blame, Fault

SEARCH_SECONDS = 300.0  # a provider may show a new batch, or results, late
HOLD_SECONDS = 600.0  # until a part is offered again for which the provider had no room
SECONDS_AT_CANCEL = 8.0  # while a user waits for the end of the run
MOST_TRIES = 3


@dataclass
class Filling:
    """The batches of one run."""

    records: Records
    provider: Provider
    settings: BatchSettings
    cap: Cap
    clock: Clock
    deadline: float | None = None
    is_late: bool = False
    is_held: bool = False  # by a provider without room, which the user knows
    waits: dict[str, str] = field(default_factory=dict)  # part -> the fault of its last try
    refusals: dict[str, str] = field(default_factory=dict)  # part -> why the budget does not allow it now

    @property
    def items(self) -> dict[str, Part]:
        """Return the parts by their names."""
        return self.records.items

    def strays(self) -> Strays:
        return Strays(self.records, self.provider, self.clock, self.settings.poll_seconds)

    def run(self, show: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
        """Return when every part has ended. Write and return the record for the receipt."""
        while self.turn():
            show(self.progress())
            self.clock.pause(self._seconds_to_next_look())
        self.strays().collect()
        return self.records.written(self.settings.dialect)

    def turn(self) -> bool:
        """Do for each part what can be done now. Return False if all parts have ended.

        Raise `BudgetReached` once no part may be sent, and none is under way.
        """
        self.records.guard()
        self.refusals.clear()
        if self.deadline is not None and self.clock.now() >= self.deadline and not self.is_late:
            self.is_late = True
            self.records.warn("batch: finish_by has come; the rows without an answer are requested outside batches")
        is_under_way = any(part.state in states.UNDER_WAY for part in self.items.values())
        for part in list(self.items.values()):
            self._try(part)
        waiting = {part.name for part in self.items.values() if part.state != states.DONE}
        if waiting and waiting == {*self.refusals} and not is_under_way:
            raise BudgetReached(self.refusals[min(waiting)])
        return bool(waiting)

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
        self.records.guard()
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
        self.records.save(part)
        parts = self.records.parts
        self._uploaded(part, self.provider.upload(parts.file_name(part), parts.requests(part)))

    def _find_upload(self, part: Part) -> None:
        file = self.provider.find_file(self.records.parts.file_name(part))
        if file:
            self._uploaded(part, file)
            return
        part.state = states.SEALED
        self.records.save(part)

    def _uploaded(self, part: Part, file: str) -> None:
        part.state, part.file = states.UPLOADED, file
        self.records.save(part)

    def _create(self, part: Part) -> None:
        if self._has_ended_late(part) or not self._has_room(part):
            return
        part.state, part.batch, part.cancelled_at, part.missed_at = states.CREATING, "", 0.0, 0.0
        part.intended_at = self.clock.now()
        part.creates += 1
        self.records.save(part)
        try:
            parts = self.records.parts
            batch = self.provider.create(part.file, parts.label(part), lambda: parts.requests(part))
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
        self.records.save(part)

    def _created(self, part: Part, batch: Batch) -> None:
        part.state, part.batch = states.CREATED, batch.id
        self.records.save(part)

    def _find(self, part: Part) -> None:
        """Search the batch of a create without an answer. Create another one if it does not appear."""
        matches = self.strays().find(part, part.intended_at)
        if matches.batches:
            self._created(part, matches.batches[0])
        elif matches.candidates and not self.is_late:
            self.waits[part.name] = "a create had no answer; the results of a batch will show whether it is its own"
        elif self.clock.now() >= part.intended_at + SEARCH_SECONDS:
            part.state = states.UPLOADED
            self.records.save(part)

    def _look(self, part: Part) -> None:
        try:
            batch = self.provider.look(part.batch)
        except Gone:
            if not self._is_missed_for_long(part):
                return
            batch = self.records.forgotten(part.batch, part)
        if batch.phase is Phase.FAILED:
            self._failed(part, batch)
        elif batch.phase is Phase.ENDED:
            self._collect(part, batch)
        elif self.is_late and not part.cancelled_at:
            self._cancel(part)
        elif self.is_late and self.clock.now() >= part.cancelled_at + CANCEL_SECONDS:
            self.records.warn(f"batch: {batch.id} does not end; up to {part.rows:,} requests of it may be paid twice")
            self.records.end(part)

    def _is_missed_for_long(self, part: Part) -> bool:
        """Return True at the end of `SEARCH_SECONDS`: a provider may show a batch and its results late."""
        if not part.missed_at:
            part.missed_at = self.clock.now()
            self.records.save(part)
        return self.clock.now() >= part.missed_at + SEARCH_SECONDS

    def _cancel(self, part: Part) -> None:
        try:
            self.provider.cancel(part.batch)
        except Fault as fault:
            if fault.passes or fault.blame is Blame.KEY:
                raise
        part.cancelled_at = self.clock.now()
        self.records.save(part)

    def _failed(self, part: Part, batch: Batch) -> None:
        """Offer the part again later if too many tokens wait. Otherwise raise `JobError`; a later run uploads it."""
        self.records.note(part, batch, Collected())
        part.state = states.SEALED
        if batch.is_full:
            part.state = states.UPLOADED
            part.not_before = self.clock.now() + HOLD_SECONDS
            if not self.is_held:
                self.is_held = True
                self.records.warn(
                    f"batch: the provider had no room for {part.rows:,} requests: {batch.problem}. They wait and are "
                    "offered again. If no other batch is under way, set enqueued_tokens to the provider's limit"
                )
        self.records.save(part)
        if not batch.is_full:
            raise JobError(f"batch: the provider refused the requests of {batch.id}: {batch.problem}", "infer")

    def _collect(self, part: Part, batch: Batch) -> None:
        keys = self.records.keys(part)
        results = self.records.collected(part, batch, keys)
        is_incomplete = results.lost(batch) or results.lost_files
        if is_incomplete and not self._is_missed_for_long(part):
            return
        self.records.note(part, batch, results)
        self.records.guard()
        missing = keys - results.answered - results.refused
        tries = part.tries + (batch.state != "cancelled")
        if missing and self.settings.then == "again" and not self.is_late and tries <= MOST_TRIES:
            rest = self.records.parts.seal_rest(part, missing, tries)
            self.items[rest.name] = rest
            part.rest = rest.name
        self.records.end(part)

    def _has_ended_late(self, part: Part) -> bool:
        if self.is_late:
            self.records.end(part)
        return self.is_late

    def _has_room(self, part: Part) -> bool:
        """Return True if the provider may take the part now."""
        if self.clock.now() < part.not_before:
            self.waits[part.name] = "the provider had no room for a part, which waits"
            return False
        most = self.settings.enqueued_tokens
        waiting = [other.tokens for other in self.items.values() if other.state in states.UNDER_WAY]
        if most is not None and waiting and sum(waiting) + part.tokens > most:
            return False
        if refusal := self.cap.refusal(part, self.items.values()):
            self.refusals[part.name] = refusal
            self.waits[part.name] = "the budget may not suffice for a part, which waits"
        return not refusal
