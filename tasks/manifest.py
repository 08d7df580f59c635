"""The manifest: the immutable list of a partition's units, taken once a generation and kept as Parquet."""

import hashlib
import io
from collections.abc import Iterable

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


def write_manifest(location: Location, units: pa.Table, inputs: str) -> None:
    """`inputs` is the digest of the files, kept in the footer."""
    buffer = io.BytesIO()
    pq.write_table(units.replace_schema_metadata({"inputs": inputs}), buffer, compression="zstd")
    location.write_bytes(buffer.getvalue())


def read_manifest(location: Location) -> tuple[pa.Table, str]:
    """The units and the digest of the files they came from. Raises `FileNotFoundError`."""
    units = pq.read_table(io.BytesIO(location.read_bytes()))
    return units, (units.schema.metadata or {})[b"inputs"].decode()
