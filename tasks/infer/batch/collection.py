"""Write the answers of an ended batch as a file of the log of answers: whole or not at all, so it can be repeated."""

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from overnight.tasks.infer.batch.connection import Gone
from overnight.tasks.infer.batch.provider import Batch, Provider, Result
from overnight.tasks.infer.endpoint.client import Body, Dialect
from overnight.tasks.infer.endpoint.faults import Fault, fault_in, fault_of
from overnight.tasks.storage.location import Location

PREFIX = "batch-"


@dataclass
class Collected:
    """The rows of a batch by their results. Rows in neither set have no answer yet."""

    answered: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)  # by the provider, for what is in the row
    useless: int = 0  # charged answers that cannot be used
    unknown: int = 0  # lines that cannot be read, or are of no row
    lost_files: int = 0

    def counts(self, completed: int | None) -> dict[str, int]:
        """Return the counts for the record. Of the provider's count and the answers, the larger one is charged."""
        charged = max(completed or 0, len(self.answered) + self.useless)
        return {"answered": len(self.answered), "refused": len(self.refused), "charged": charged}

    def lost(self, batch: Batch) -> int:
        """Return the number of answers that the provider counts, and that its results do not have."""
        return max((batch.completed or 0) - len(self.answered) - self.useless, 0)

    def warnings(self, batch: Batch) -> Iterator[str]:
        lost = self.lost(batch)
        if self.lost_files:
            yield "the provider has deleted its results; no run looked at them in time"
        if lost:
            yield f"{lost:,} answers are paid and missing in the results; these rows are requested again"
        if self.unknown:
            yield f"{self.unknown:,} lines of the results cannot be read, or belong to no row"


@dataclass(frozen=True)
class Collection:
    """Writes answers into the folder of the log. `price` is that of a token, as a share of its usual price."""

    provider: Provider
    dialect: Dialect[Any]
    folder: Location
    price: float
    is_whole: Callable[[Body, Any], bool] = lambda _, answer: True

    def collect(self, batch: Batch, name: str, keys: set[str], reuse_keys: Mapping[str, str]) -> Collected:
        """Write the answers of a batch to the rows with these keys. `reuse_keys`: under what later runs find them."""
        collected = Collected()
        with (self.folder / f"{PREFIX}{name}.jsonl").writing() as file:
            for result in self._results(batch, collected):
                if result is None or result.key not in keys:
                    collected.unknown += 1
                elif result.key not in collected.answered:
                    file.write(self._line(result, collected, reuse_keys.get(result.key)))
        collected.refused -= collected.answered
        return collected

    def count_answers(self) -> int:
        """Return the number of rows that all batches answered. The keys of one part at a time are in memory."""
        names = [name for name in self.folder.names() if name.startswith(PREFIX)]
        count = 0
        for _, group in itertools.groupby(names, key=_part_of):
            keys: set[str] = set()
            for name in group:
                with (self.folder / name).open() as lines:
                    keys.update(json.loads(line)["key"] for line in lines)
            count += len(keys)
        return count

    def _results(self, batch: Batch, collected: Collected) -> Iterator[Result | None]:
        for id in batch.results:
            try:
                yield from self.provider.results(id)
            except Gone:
                collected.lost_files += 1

    def _line(self, result: Result, collected: Collected, reuse_key: str | None) -> bytes:
        """Return the line of the log for a result, or nothing. Note the row in `collected`."""
        if result.error is None and result.body is None:
            return b""
        if result.error is not None:
            if not _fault(result).passes:
                collected.refused.add(result.key)
            return b""
        try:
            answer = self.dialect.answer(json.dumps(result.body).encode())
        except Fault as fault:
            collected.useless += 1
            if not fault.passes:
                collected.refused.add(result.key)
            return b""
        collected.answered.add(result.key)
        record: dict[str, Any] = {"key": result.key, "answer": asdict(answer) | {"price": self.price}}
        if reuse_key and self.is_whole({}, answer):
            record["reuse"] = {"key": reuse_key, "at": int(time.time())}
        return json.dumps(record).encode() + b"\n"


def _part_of(name: str) -> str:
    """Return the number of the first part whose rows a file of answers has."""
    return re.split(r"[-.]", name.removeprefix(PREFIX))[0]


def _fault(result: Result) -> Fault:
    if result.status is None:
        return fault_in(result.error)
    import httpx

    return fault_of(httpx.Response(result.status, json=result.error))
