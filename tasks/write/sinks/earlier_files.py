"""Files of earlier publishes: where a sink keeps replaced files, and how they are published again.

A kept file is `<path>/_kept/date=D/<name>.kept`, so that no listing of `*.parquet` finds it. A file name is never used
again, so several publications share a file. Published again, a file has a new name: a link, or a copy of the store.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.errors import NotKept
from overnight.tasks.state.run import Run, published_files
from overnight.tasks.storage.filesystems import entries, is_local
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import MergedFile
from overnight.tasks.write.sink import file_prefix

FOLDER, KEPT = "_kept", ".kept"
# another filesystem, or a folder half-copied from one by a process that died
COPIED = (errno.EXDEV, errno.ENOTEMPTY, errno.EEXIST)


def kept_folder(run: Run) -> Location:
    """Return the directory of the kept files of the run's partition."""
    folder = run.sink / FOLDER
    return folder / run.partition_directory if run.partition_directory else folder


def published_or_kept(sink: Location, file: str) -> Location:
    """Return the place of a file of a receipt, which has its path below the sink: published, or kept since."""
    target, copy = sink / file, sink / FOLDER / f"{file}{KEPT}"
    return copy if not target.exists() and copy.exists() else target


def move(source: Location, target: Location) -> None:
    """Move a file, or a folder, to another place in its store. On an object store the source stays for `finish`.

    If the source is gone, a later run has moved it meanwhile: the target stays as it is.
    """
    filesystem, path = source.open_filesystem()
    _, new_path = target.open_filesystem()
    with contextlib.suppress(FileNotFoundError):
        if is_local(filesystem):
            os.makedirs(os.path.dirname(new_path), exist_ok=True)
            _move_on_disk(path, new_path)
            return
        for file in filesystem.find(path):
            filesystem.cp_file(file, new_path + file.removeprefix(path))


def publish_again(
    run: Run, receipt: Mapping[str, Any], place_of: Callable[[Location, str], Location], folder: Location, suffix: str
) -> list[MergedFile]:
    """Link or copy the files of a receipt into `folder`, under new names. Raise `NotKept` if one is gone."""
    files, numbers = [], dict[str, int]()
    for file in published_files(dict(receipt)):
        stem, _, ending = file.rsplit("/", 1)[-1].partition(".")
        number = numbers.setdefault(stem, len(numbers))  # an index and its images have one
        name = f"{file_prefix(run)}{number:05d}.{ending}"
        source, target = place_of(run.sink, file), folder / f"{name}{suffix}"
        if not source.exists():
            raise NotKept(
                f"{run.job}/{run.partition}: expected the files of the generation {receipt['generation']}, found "
                f"{file} gone. Nothing was changed. sink.keep_publications is how many replaced publications a sink of "
                "files keeps, from the next publish on. A table keeps its files until its owner removes them."
            )
        _copy(source, target)
        files.append(MergedFile(name, target, 0, 0, {}))
    return files


def counted(files: list[MergedFile]) -> tuple[list[MergedFile], pa.Schema]:
    """Return Parquet files with their rows and bytes, and their common columns."""
    result, schema = [], pa.schema([])
    for file in files:
        with file.place.open() as content:
            parquet = pq.ParquetFile(content)
            schema = schema if len(schema) else parquet.schema_arrow
            size = content.seek(0, os.SEEK_END)
            result.append(replace(file, rows=parquet.metadata.num_rows, bytes=size))
    return result, schema.remove_metadata()


def _move_on_disk(path: str, new_path: str) -> None:
    try:
        os.rename(path, new_path)
    except OSError as error:
        if error.errno not in COPIED:  # a network filesystem may fail after the rename
            raise
        Location(new_path).remove()
        shutil.move(path, new_path)


def _copy(source: Location, target: Location) -> None:
    """Copy a file, or a folder with its files. `isdir` is not used for a store: it returns False if the store fails."""
    filesystem, path = source.open_filesystem()
    if is_local(filesystem) and os.path.isdir(path):
        os.makedirs(target.open_filesystem()[1], exist_ok=True)  # a folder without images
    for entry in entries(filesystem, path):
        below = entry.name.removeprefix(path)
        replace(source, template=source.template + below).copy_to(replace(target, template=target.template + below))
