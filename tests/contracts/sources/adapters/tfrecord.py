"""Files of tf.train.Example, their bytes written by hand, from TensorFlow's description of the format."""

import struct
from pathlib import Path
from typing import Any, ClassVar

import google_crc32c
import numpy as np
import pyarrow as pa

from overnight.tasks.ingest.sources.tfrecord import TfRecord
from tests.contracts.sources.adapter import NO_COLUMNS, NO_WHERE, ROWS, Adapter, Damage
from tests.tasks.ingest.conftest import overwritten, rewritten

FLOATS = [np.nan, np.inf, -np.inf, -0.0, 1e-45, 0.1]


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    written = b""
    while value > 127:
        written, value = written + bytes([value & 127 | 128]), value >> 7
    return written + bytes([value])


def field(number: int, content: bytes) -> bytes:
    """A field of a protobuf message, with its length before it."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def example(**features: Any) -> bytes:
    """The message tf.train.Example; a feature is bytes, a float, an int, or a list of one of them."""
    entries = b""
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        if not values:
            feature = b""
        elif isinstance(values[0], bytes):
            feature = field(1, b"".join(field(1, v) for v in values))
        elif isinstance(values[0], float):
            feature = field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
        else:
            feature = field(3, field(1, b"".join(varint(v) for v in values)))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def record(content: bytes) -> bytes:
    def sum_of(data: bytes) -> bytes:
        crc = google_crc32c.value(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(content))
    return length + sum_of(length) + content + sum_of(content)


def as_read(value: Any) -> Any:
    if isinstance(value, list):
        return [as_read(item) for item in value] or None
    return float(np.float32(value)) if isinstance(value, float) else value


class TfRecords(Adapter):
    kind = "tfrecord"
    leaf = TfRecord
    extension = ".tfrecord"
    written: ClassVar[dict[Path, list[dict[str, Any]]]] = {}
    values = pa.table(
        {
            "n": [0, 1, -(2**63), 2**63 - 1, 2, 3],
            "float": FLOATS,
            "bytes": [b"", b"\xff", b"a", "é".encode(), b"\0", b"x"],
            "numbers": [[1, -1], [], [2], [3, 4, 5], [0], [0]],
            "floats": [FLOATS, [1.0], [], [2.0], [3.0], [4.0]],
            "pieces": [[b"a", b""], [b"b"], [], [b"c"], [b"d"], [b"e"]],
        }
    )
    damages = {
        "cut": Damage(rewritten(lambda content: content[:-3]), "expected", range(ROWS - 1)),
        "a byte": Damage(rewritten(lambda content: overwritten(content, 14, 15)), "check sum", range(1, ROWS)),
    }
    not_applicable = {
        "columns": NO_COLUMNS,
        "where": NO_WHERE,
    }

    def rows(self, count: int = ROWS, first: int = 0) -> pa.Table:
        rows = super().rows(count, first)
        return rows.set_column(1, "text", rows["text"].cast(pa.binary()))

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        path = self.place(folder, name)
        more = [
            {key: value.encode() if isinstance(value, str) else value for key, value in row.items()}
            for row in rows.to_pylist()
        ]
        path.write_bytes(b"".join(record(example(**row)) for row in more))
        self.written[path] = more
        return path

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        """What was written, as no other library is there: a float has 32 bits, and a feature without values is null."""
        return [
            {name: as_read(value) for name, value in row.items()}
            for path in folder.rglob("*.tfrecord")
            for row in self.written[path]
        ]
