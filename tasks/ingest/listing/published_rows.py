"""Finds the files of a partition that another job published, by its receipt.

A receipt names the files of one publish, and no name is ever used again. So files of two publishes never mix.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import sleep
from typing import Any

from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import InputError, ServiceUnavailable
from overnight.tasks.state.run import partition_directory, published_files, read_json
from overnight.tasks.storage.error_translation import translate_storage_errors
from overnight.tasks.storage.file_info import entry_of
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.local_file import local_info
from overnight.tasks.storage.location import File, Location

LOOKS_AT_ONCE = 16
# A publish on a disk takes moments between the exchange of the files and the new receipt.
LOOKS = RetryPolicy(max_tries=8, first_wait_seconds=0.1, longest_wait_seconds=2.0)


@dataclass(frozen=True)
class Upstream:
    """A job whose rows another job reads. `sink` and `state` are the places of its table and its ledgers, unexpanded.

    `sink_kind` and `compression` are those of its sink; `compression` is empty if the sink has no such setting.
    `partition_column` is the name of the sink's column for the date. If `is_dated` is False, the only partition is
    `all`.
    """

    name: str
    job_file: str
    sink_kind: str
    sink: str
    state: str
    partition_column: str
    is_dated: bool
    compression: str = ""

    def ledger(self, partition: str) -> Location:
        """Return the folder of the receipts and failures of a partition."""
        return Location(self.state) / (partition_directory(self.partition_column, partition) or "all")

    def lacking(self, partition: str) -> str:
        """Return an empty string if the partition is published, otherwise a sentence on what was expected and found."""
        if self._newest(partition):
            return ""
        failure = read_json(self.ledger(partition) / "failure.json")
        why = f"; its latest attempt failed: {failure['error_message']}" if failure else ""
        return f"expected the partition {partition} of the job {self.name}, found it not published{why}"

    def receipt(self, partition: str, generation: str = "") -> dict[str, Any]:
        """Return the newest receipt of a partition, or if `generation` is not empty, the receipt of this generation.

        Raise `InputError` if there is no such receipt.
        """
        if generation:
            found = read_json(self.ledger(partition) / "receipts" / f"{generation}.json")
        else:
            found = self._newest(partition)
        if found is None:
            raise InputError(
                f"source.job: {self.lacking(partition) or f'{self.name} has no receipt of {generation} any more'}. "
                f"Run it first: overnight run {self.job_file} --partition {partition}, or set source.wait_for."
            )
        return found

    def files(self, partition: str, generation: str = "") -> list[File]:
        """Return the files that a receipt lists, sorted by name, with their current sizes and versions.

        It is the newest receipt, or if `generation` is not empty, the receipt of this generation. Raise
        `ServiceUnavailable` if a publish is replacing the files for longer than some seconds. Raise `InputError` if
        they are gone or there is no receipt.
        """
        waits = LOOKS.waits()
        while True:
            receipt = self.receipt(partition, generation)
            try:
                return self._listed(published_files(receipt))
            except FileNotFoundError as error:
                gone = error
            is_under_way = read_json(self.ledger(partition) / "publishing.json") is not None
            if not is_under_way and receipt == self.receipt(partition, generation):
                raise InputError(
                    f"source.job: expected the files that the receipt of {self.name}/{partition} lists, found one "
                    f"gone: {gone}. Run that job with force, then this one."
                )
            if (seconds := next(waits, None)) is None:
                raise ServiceUnavailable(f"{self.name}/{partition} is being published at this moment", "ingest")
            sleep(seconds)

    def _newest(self, partition: str) -> dict[str, Any] | None:
        found = read_json(self.ledger(partition) / "receipt.json")
        return found if found and found["job"] == self.name else None

    def _listed(self, names: Sequence[str]) -> list[File]:
        filesystem, root = Location(self.sink).open_filesystem()

        def look(name: str) -> File:
            path = f"{root.rstrip('/')}/{name}"
            entry = entry_of(path, local_info(path) if is_local(filesystem) else filesystem.info(path))
            return File(name, (Location(self.sink) / name).uri, entry.size, entry.version, entry.changed_at)

        with translate_storage_errors("look at", Location(self.sink)), ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
            return list(pool.map(look, sorted(names)))
