"""The job whose published rows another job reads, and the files of a partition by its receipt.

A receipt names the files of one publish, and no name is ever used again. So files of two publishes never mix.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import sleep
from typing import Any
from zoneinfo import ZoneInfo

from overnight.tasks.config.partition_names import partition_name, time_and_value
from overnight.tasks.config.periods import Unit, periods_inside
from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import InputError, ServiceUnavailable
from overnight.tasks.state.run import ledger_name, published_files, read_json
from overnight.tasks.storage.error_translation import translate_storage_errors
from overnight.tasks.storage.file_info import entry_of
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.local_file import local_info
from overnight.tasks.storage.location import File, Location

LOOKS_AT_ONCE = 16
# A publish on a disk takes moments between the exchange of the files and the new receipt.
LOOKS = RetryPolicy(max_tries=8, first_wait_seconds=0.1, longest_wait_seconds=2.0)


@dataclass(frozen=True)
class ShorterPartitions:
    """Several partitions that one partition reads: the periods of `every` in its own, and the values of now.

    `every` is None for the same period, and `values` is empty for the same value.
    """

    every: Unit | None = None
    zone: str = "UTC"
    own_every: Unit | None = None
    own_zone: str = "UTC"
    first: str = ""  # the name of the first period that there is; empty: all
    values: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()  # of the reading job's partitions

    def names(self, partition: str) -> list[str]:
        """Return the other job's partitions that a partition reads."""
        time, own_value = time_and_value(partition)
        times = [time]
        if self.every and self.own_every:
            times = periods_inside(self.every, ZoneInfo(self.zone), self.own_every, time, ZoneInfo(self.own_zone))
            times = [period for period in times if period >= self.first] or times
        return [partition_name(period, value) for period in times for value in self.values or [own_value]]


@dataclass(frozen=True)
class Upstream:
    """A job whose rows another job reads. `sink` and `state` are the places of its table and its ledgers, unexpanded.

    `compression` is empty if the sink has no such setting. `partition_column` is the name of the sink's column for the
    date. If `is_dated` is False, the only partition is `all`.
    """

    name: str
    job_file: str
    sink_kind: str
    sink: str
    state: str
    partition_column: str
    is_dated: bool
    compression: str = ""
    shorter: ShorterPartitions | None = None  # if a partition does not read the one of its name

    def names(self, partition: str) -> list[str]:
        """Return the partitions of this job that a partition of the reading job reads."""
        return self.shorter.names(partition) if self.shorter else [partition]

    def ledger(self, partition: str) -> Location:
        """Return the folder of the receipts and failures of a partition."""
        return Location(self.state) / ledger_name(self.partition_column, partition)

    def lacking(self, partition: str) -> str:
        """Return an empty string if the partition is published, otherwise a sentence on what was expected and found."""
        if self._newest(partition):
            return ""
        failure = read_json(self.ledger(partition) / "failure.json")
        reason = f"; its latest attempt failed: {failure['error_message']}" if failure else ""
        return f"expected the partition {partition} of the job {self.name}, found it not published{reason}"

    def receipt(self, partition: str, generation: str = "") -> dict[str, Any]:
        """Return the receipt of a generation, by default the newest. Raise `InputError` if there is none."""
        if generation:
            receipt = read_json(self.ledger(partition) / "receipts" / f"{generation}.json")
        else:
            receipt = self._newest(partition)
        if receipt is None:
            raise InputError(
                f"source.job: {self.lacking(partition) or f'{self.name} has no receipt of {generation} any more'}. "
                f"Run it first: overnight run {self.job_file} --partition {partition}, or set source.wait_for."
            )
        return receipt

    def files(self, partition: str, generation: str = "") -> list[File]:
        """Return the files that a receipt lists, sorted by name, with their current sizes and versions."""
        waits = LOOKS.waits()
        while True:
            receipt = self.receipt(partition, generation)
            try:
                return self._files_now(published_files(receipt))
            except FileNotFoundError as error:
                missing = error
            is_under_way = read_json(self.ledger(partition) / "publishing.json") is not None
            if not is_under_way and receipt == self.receipt(partition, generation):
                raise InputError(
                    f"source.job: expected the files that the receipt of {self.name}/{partition} lists, found one "
                    f"gone: {missing}. Run that job with force, then this one."
                )
            if (seconds := next(waits, None)) is None:
                raise ServiceUnavailable(f"{self.name}/{partition} is being published at this moment", "ingest")
            sleep(seconds)

    def _newest(self, partition: str) -> dict[str, Any] | None:
        receipt = read_json(self.ledger(partition) / "receipt.json")
        return receipt if receipt and receipt["job"] == self.name else None

    def _files_now(self, names: list[str]) -> list[File]:
        filesystem, root = Location(self.sink).open_filesystem()

        def look(name: str) -> File:
            path = f"{root.rstrip('/')}/{name}"
            info = local_info(path) if is_local(filesystem) else filesystem.info(path)
            entry = entry_of(path, info)
            return File(name, (Location(self.sink) / name).uri, entry.size, entry.version, entry.changed_at)

        with translate_storage_errors("look at", Location(self.sink)), ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
            return list(pool.map(look, sorted(names)))
