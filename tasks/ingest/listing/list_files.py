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
    """Return the files of a partition, in the order in which the source lists them.

    Raise `InputError` if they cannot be listed, or if there are none and the source's `allow_empty` is False. Raise
    `ServiceUnavailable` if a later attempt may succeed.
    """
    return list(stream_inputs(source, partition))


def stream_inputs(source: Source, partition: str) -> Iterator[File]:
    """Yield the files of a partition while the source lists them, in its order.

    Raise `InputError` if they cannot be listed, or if there are none and the source's `allow_empty` is False. Raise
    `ServiceUnavailable` if a later attempt may succeed.
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
    """Yield the files of a partition while the source lists them, in its order; nothing if there are none.

    If a place does not exist or a pattern finds nothing, add the error to `missing`. Raise `InputError` for it if
    `missing` is None. Raise `InputError` also if the files cannot be listed, and `ServiceUnavailable` if a later
    attempt may succeed.
    """
    with translate_listing_errors(source.place(partition)):
        try:
            yield from source.files(partition)
        except FileNotFoundError as error:
            if missing is None:
                raise
            missing.append(error)


def file_units(files: list[File], rows: int | None) -> pa.Table:
    """Return one unit per file (schema `manifest.UNITS`). Each has `rows` rows; None if only reading shows this."""
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
