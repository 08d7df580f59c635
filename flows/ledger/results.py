"""The results of a job that a user can look at and compare: published partitions, samples, and their quarantines.

A result has a name. `2026-11-19` or `all` names the published partition. `2026-11-19/sample-2` names the second sample
of that day, and `2026-11-19/sample` its newest one. `2026-11-19@1` names the oldest publication of that day.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.flows.job.model import Job
from overnight.flows.job.outputs import Outputs
from overnight.flows.ledger import published_rows
from overnight.flows.ledger.published_rows import KEPT, records_of_receipt
from overnight.flows.schedule.partitions import parse_day
from overnight.tasks.errors import JobError, OvernightError
from overnight.tasks.state.publications import publications
from overnight.tasks.state.run import read_json
from overnight.tasks.storage.location import Location

SAMPLE = re.compile(r"sample(?:-([1-9]\d*))?")
FAILED = "failure-quarantine.parquet"
ROWS_AT_ONCE = 1024


class NoResult(OvernightError):
    """The published partition or the sample that a user names does not exist. The message shows how to get one."""


@dataclass(frozen=True)
class Result:
    """A published partition, or a sample of one. Its `name` is such as `2026-11-19` or `2026-11-19/sample-2`.

    `kept` is the file with the rows of a sample that a later sample replaced, otherwise None.
    """

    job: Job
    receipt: dict[str, Any]
    name: str
    kept: Location | None = None

    @property
    def what(self) -> str:
        """Return `published`, or for a sample its size: `sample of 5 rows`."""
        is_published = not self.job.outputs_of(self.receipt).are_samples
        return "published" if is_published else f"sample of {self.receipt['rows_in']:,} rows"

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows, one table after another. Raise `FileNotFoundError` if a publish replaces them meanwhile."""
        if not self.kept:
            yield from published_rows.batches(self.job, self.receipt, columns)
            return
        with self.kept.open() as file:
            for batch in pq.ParquetFile(file).iter_batches(ROWS_AT_ONCE, columns=columns):
                yield pa.Table.from_batches([batch])

    def with_images(self, rows: pa.Table) -> pa.Table:
        """Return rows of this result with the bytes of images in the place of their paths, if its sink is `images`."""
        return rows if self.kept else published_rows.with_images(rows, self.job, self.receipt)

    def quarantine(self) -> pa.Table:
        """Return the quarantined rows: `row_id`, `uri`, `stage`, `error_type` and `error_message`, all strings."""
        if not self.kept:
            return published_rows.quarantine_of(self.job, self.receipt)
        records = records_of_receipt(self.job, self.receipt)
        return published_rows.read_parquet(records / "generations" / self.receipt["generation"] / "quarantine")


@dataclass(frozen=True)
class Results:
    """The results of a job in one place: its partitions or its samples. The commands in messages name the `file`."""

    job: Job
    file: str
    outputs: Outputs

    def partition(self, named: str | None, or_failed: bool = False) -> str:
        """Return the name of the partition `named`, or of the newest partition with a result."""
        if not self.job.is_dated:
            if named not in (None, "all"):
                raise JobError(f"expected the partition all, which is the only one of this job, found {named}.")
            return "all"
        if named and self.job.partitions:
            self.job.partitions.number(named)  # it may have a value that the job no longer has
            return named
        if named:
            return parse_day(named).isoformat()
        prefix = f"{self.job.sink.partition_column}="
        files = ["receipt.json", *["failure.json"] * or_failed]
        folder = self.outputs.state
        for name in reversed(folder.names()):
            if name.startswith(prefix) and any((folder / name / file).exists() for file in files):
                return name.removeprefix(prefix)
        raise NoResult(self._missing("a sample" if self.outputs.are_samples else "a published partition"))

    def result(self, partition: str, number: int | None = None) -> Result:
        """Return the published result of a partition, or its sample with this number, by default the newest.

        Number 1 is the oldest sample. Raise `NoResult` if the result does not exist.
        """
        records = self.outputs.ledger(partition)
        if self.outputs.are_samples:
            return self._sample(records, partition, number)
        receipt = read_json(records / "receipt.json")
        if receipt is None:
            raise NoResult(self._missing(f"{partition} published", partition))
        return Result(self.job, receipt, partition)

    def publication(self, partition: str, name: str) -> Result:
        """Return a publication by its number, 1 for the oldest, by its generation, or the one `before` the published.

        Raise `NoResult` if there is none, or if the sink keeps only the rows of the newest one.
        """
        records = self.outputs.ledger(partition)
        current = (read_json(records / "receipt.json") or {}).get("generation")
        receipts = publications(records, self.job.name)
        names = [str(receipt["generation"]) for receipt in receipts]
        number = int(name) - 1 if name.isdecimal() else -1
        if name == "before":
            number = names.index(current) - 1 if current in names else -1
        elif name in names:
            number = names.index(name)
        if not 0 <= number < len(receipts):
            listing = ", ".join(f"{count} ({generation})" for count, generation in enumerate(names, 1))
            raise NoResult(
                f"{self.job.name}: expected one of the publications of {partition}, {listing or 'none'}; found "
                f"{'none before the published one' if name == 'before' else name}."
            )
        if names[number] != current and not self.job.sink.keeps_publications:
            raise NoResult(
                f"{self.job.name}: a sink of kind {self.job.sink.kind} has only the rows of the newest publish, "
                f"{current}. Run the partition again, with the settings and inputs of then."
            )
        return Result(self.job, receipts[number], f"{partition}@{number + 1}")

    def _sample(self, records: Location, partition: str, number: int | None) -> Result:
        files = [name for name in (records / "receipts").names() if name.endswith(".json")]
        count = len(files)
        if not count:
            raise NoResult(self._missing(f"a sample of {partition}", partition))
        number = number or count
        if number > count:
            raise NoResult(
                f"{self.job.name}: expected one of the samples 1 to {count} of {partition}, found sample-{number}."
            )
        receipt = read_json(records / "receipts" / files[number - 1]) or {}
        rows = records / "rows" / files[number - 1].replace(".json", ".parquet") if number < count else None
        if rows and not rows.exists():
            raise NoResult(
                f"{self.job.name}: the rows of sample-{number} of {partition} are gone: the newest {KEPT} "
                "samples are kept. Make it again with --limit-rows."
            )
        return Result(self.job, receipt, f"{partition}/sample-{number}", rows)

    def named(self, name: str, partition: str | None = None) -> Result:
        """Return the result with a name such as `2026-11-19`, `2026-11-19@1`, `2026-11-19/sample-2` or `sample`."""
        base, at, label = name.partition("@")
        if at:
            return self.publication(self.partition(base or partition), label)
        day, _, kind = name.rpartition("/")
        if match := SAMPLE.fullmatch(kind):
            number = int(match[1]) if match[1] else None
            samples = replace(self, outputs=self.job.samples)
            return samples.result(samples.partition(day or partition), number)
        if kind == "published":
            return self.result(self.partition(day or partition))
        if day:
            raise JobError(f"{name}: expected {day}/sample, {day}/sample-2 or {day}/published.")
        return self.result(self.partition(kind))

    def failure(self, partition: str) -> dict[str, Any] | None:
        """Return the content of `failure.json` if the latest run failed, otherwise None."""
        return read_json(self.outputs.ledger(partition) / "failure.json")

    def failed_rows(self, partition: str) -> pa.Table | None:
        """Return the quarantine of the latest run, if it failed and kept one."""
        failure = self.failure(partition)
        if not failure or not failure.get("quarantine"):
            return None
        try:
            return published_rows.read_parquet(self.outputs.ledger(partition) / FAILED)
        except FileNotFoundError:  # a new run has begun
            return None

    def _missing(self, what: str, partition: str | None = None) -> str:
        day = f" --partition {partition}" if partition and self.job.is_dated else ""
        failure = self.failure(partition) if partition else None
        reason = f"; its latest run failed: {failure['error_message']}" if failure else ""
        command = f"overnight run {self.file}{day}{' --limit-rows 100' * self.outputs.are_samples}"
        return f"{self.job.name}: expected {what}, found none{reason}. Make it with: {command}"
