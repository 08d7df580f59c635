"""The listing of a partition's files, and the units of sources whose files are read whole."""

from collections.abc import Iterator

import pyarrow as pa

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.source import Source
from overnight.tasks.state.manifest import UNITS
from overnight.tasks.storage import skipped_files
from overnight.tasks.storage.error_translation import translate_listing_errors
from overnight.tasks.storage.location import File


def list_inputs(source: Source, partition: str) -> list[File]:
    """Return the files of a partition as a list. Raise the errors of `stream_inputs`."""
    return list(stream_inputs(source, partition))


def stream_inputs(source: Source, partition: str) -> Iterator[File]:
    """Yield the files of a partition, sorted by path, as they are found.

    Raise `InputError` if they cannot be listed, or if there are none and `allow_empty` is False. Raise
    `ServiceUnavailable` if the error may pass.
    """
    is_empty = True
    for file in find_files(source, partition):
        is_empty = False
        yield file
    if is_empty and not source.allow_empty:
        expected = f"files ending in {', '.join(source.extensions)}" if source.extensions else "files"
        passed = f" (passed over: {found})" if (found := skipped_files.told_so_far()) else ""
        raise InputError(
            f"source.{source.located_by}: expected {expected} below {source.place(partition)}, found none{passed}. "
            "Set source.allow_empty: true if an empty partition is expected."
        )


def find_files(source: Source, partition: str, missing: list[FileNotFoundError] | None = None) -> Iterator[File]:
    """Yield the files of a partition, as `stream_inputs` does, but raise no error if there are none.

    Raise the other errors of `stream_inputs`. If `missing` is a list, the error of a place that does not exist is added
    to the list, and not raised.
    """
    with translate_listing_errors(source.place(partition)):
        try:
            yield from source.files(partition)
        except FileNotFoundError as error:
            if missing is None:
                raise
            missing.append(error)


def file_units(files: list[File], rows: int | None) -> pa.Table:
    """Return one unit per file (schema `manifest.UNITS`), each of `rows` rows; None: only reading shows it."""
    count = len(files)
    return pa.table(
        {
            "unit": range(count),
            "path": [file.path for file in files],
            "uri": [file.uri for file in files],
            "size": [file.size for file in files],
            "version": [file.version for file in files],
            "first_row": [0] * count,
            "rows": [rows] * count,
            "row_group": [None] * count,
        },
        schema=UNITS,
    )
