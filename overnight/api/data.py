"""Data from memory as the source of a job: written once as Parquet, to `<state>/data/<partition>/<digest>/`.

The digest identifies the content. So a run with the same data has the same source, and can resume. A run with other
data has another source. The files of a partition are removed after a run of it succeeds.
"""

import hashlib
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.api.arrow_tables import as_tables, plain
from overnight.tasks.errors import JobError, explain
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.location import Location

GROUP_BYTES, GROUP_ROWS = 16 * 2**20, 10_000  # the largest row group, which is read as one unit


def place_data(data: Any, folder: Location) -> str:
    """Write data as Parquet files to a new folder below `folder`. Return the digest that names the new folder.

    `data` is a Ray Dataset, or what `as_tables` takes. The digest follows from the content. Raise `JobError` for other
    data, for data without rows, and for columns that Parquet cannot store.
    """
    draft = folder / f"_{uuid.uuid4().hex}"
    try:
        if _is_ray_dataset(data):
            _write_dataset(data, draft)
        else:
            _write(as_tables(data), draft / "data.parquet")
        files = [draft / name for name in sorted(draft.names()) if name.endswith(".parquet")]
        if not any(map(_has_rows, files)):
            raise JobError(f"data: expected at least one row with a column, found none in {type(data).__name__}.")
        digest = _digest(files)
        present = (folder / digest).names()  # from an earlier call, which may have ended half-way
        for number, file in enumerate(files):
            name = f"data-{number:05d}.parquet" if number else "data.parquet"
            if name not in present:
                _move(file, folder / digest / name)
    finally:
        draft.remove()
    return digest


def _has_rows(location: Location) -> bool:
    with location.open() as file:
        return pq.read_metadata(file).num_rows > 0


def _is_ray_dataset(data: Any) -> bool:
    ray_data = sys.modules.get("ray.data")
    return ray_data is not None and isinstance(data, ray_data.Dataset)


def _write(tables: Iterator[pa.Table], location: Location) -> None:
    with location.writing() as file:
        first = next(tables)
        try:
            with pq.ParquetWriter(file, first.schema, compression="zstd") as writer:
                for table in _grouped(first, tables):
                    writer.write_table(table, row_group_size=max(len(table), 1))
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise JobError(f"data: expected columns that Parquet can store, found {error}. Convert them.") from None


def _grouped(first: pa.Table, others: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows in tables of the size of a row group. Without rows, yield one empty table."""
    remainder, is_first = first, True
    while True:
        rows = _group_rows(remainder)
        while len(remainder) > rows:
            yield remainder.slice(0, rows)
            remainder, is_first = remainder.slice(rows), False
        following = next(others, None)
        if following is None:
            break
        remainder = pa.concat_tables([remainder, following])
    if len(remainder) or is_first:
        yield remainder


def _group_rows(table: pa.Table) -> int:
    bytes_per_row = table.nbytes / max(len(table), 1)
    return max(1, min(GROUP_ROWS, int(GROUP_BYTES // max(bytes_per_row, 1))))


def _write_dataset(data: Any, folder: Location) -> None:
    """Write a Ray Dataset by Ray, in parallel. Its names begin with a random number; the number of the task follows.

    An error of the Dataset's own code is raised as an `OvernightError`.
    """
    filesystem, path = folder.open_filesystem()
    if is_local(filesystem):
        os.makedirs(path, exist_ok=True)
        filesystem = None
    rows = data.map_batches(plain, batch_format="pyarrow", batch_size=None)
    context = data.context  # `rows` has the same one
    raises_original, context.raise_original_map_exception = context.raise_original_map_exception, True
    try:
        rows.write_parquet(path, filesystem=filesystem)
    except Exception as error:
        raise explain(error, "plan") from None  # Ray's own exception lacks its cause on its way to the driver
    finally:
        context.raise_original_map_exception = raises_original


def _digest(files: Sequence[Location]) -> str:
    digest = hashlib.sha256()
    for location in files:
        with location.open() as file:
            while piece := file.read(2**20):
                digest.update(piece)
    return digest.hexdigest()[:16]


def _move(source: Location, target: Location) -> None:
    """Move a file. A local one gets a fixed time of change, which is its version: the digest names its content."""
    filesystem, path = target.open_filesystem()
    if not is_local(filesystem):
        filesystem.mv(source.open_filesystem()[1], path)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.utime(source.open_filesystem()[1], (0, 0))
    os.replace(source.open_filesystem()[1], path)
