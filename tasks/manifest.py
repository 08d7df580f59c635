"""The manifest: the immutable list of a partition's units, taken once a generation and kept as Parquet."""

import base64
import hashlib
import io
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.storage import File, Location

UNITS = pa.schema(
    [
        ("unit", pa.int64()),
        ("path", pa.string()),
        ("uri", pa.string()),
        ("size", pa.int64()),
        ("version", pa.string()),
        ("first_row", pa.int64()),
        ("rows", pa.int64()),  # null: not known before the unit is read
        ("row_group", pa.int32()),
    ]
)


def digest(files: Iterable[File]) -> str:
    """One hash over path, size and version of every file: it changes when the inputs do."""
    sha = hashlib.sha256()
    for file in files:
        sha.update(f"{file.path}\0{file.size}\0{file.version}\n".encode())
    return sha.hexdigest()


def write_manifest(location: Location, units: pa.Table, inputs: str, schema: pa.Schema | None) -> None:
    """In the footer are `inputs`, the digest of the files, and `schema`, as which all units are read, if any."""
    metadata: dict[str, str | bytes] = {"inputs": inputs}
    if schema is not None:
        metadata["schema"] = base64.b64encode(schema.serialize().to_pybytes())
    buffer = io.BytesIO()
    pq.write_table(units.replace_schema_metadata(metadata), buffer, compression="zstd", row_group_size=2**18)
    location.write_bytes(buffer.getvalue())


def read_schema(location: Location) -> pa.Schema | None:
    """The columns and types that every attempt reads all units as; None where the files themselves say."""
    with location.open() as file:
        encoded = (pq.ParquetFile(file).schema_arrow.metadata or {}).get(b"schema")
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded))) if encoded else None


def read_manifest(location: Location, columns: Sequence[str] | None = None) -> tuple[pa.Table, str]:
    """The units, or some of their columns, and the digest of the files they came from. Raises `FileNotFoundError`.

    Of ten million files the paths, URIs and versions are 2 GB, the numbers of rows 80 MB.
    """
    with location.open() as file:
        units = pq.ParquetFile(file).read(columns)
    return units, (units.schema.metadata or {})[b"inputs"].decode()


def read_units(location: Location, numbers: np.ndarray) -> pa.Table:
    """The units of these numbers, which ascend, holding no more than a row group of the others at a time."""
    found, first = [UNITS.empty_table()], 0
    with location.open() as file:
        manifest = pq.ParquetFile(file)
        for group in range(manifest.num_row_groups):
            after = first + manifest.metadata.row_group(group).num_rows
            low, high = np.searchsorted(numbers, [first, after])
            if low < high:
                found.append(manifest.read_row_group(group).cast(UNITS).take(numbers[low:high] - first))
            first = after
    return pa.concat_tables(found)
