"""Files of tf.train.Example, their bytes written and read by hand, from TensorFlow's description of the format."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa

from overnight.tasks.ingest.sources.tfrecord import TfRecord
from tests.contracts.sources.adapter import ROWS, Adapter, Damage
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


def varint_at(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (content[place] & 127) << shift
        place, shift = place + 1, shift + 7
        if content[place - 1] < 128:
            return value, place


def fields(content: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(content):
        number = content[place] >> 3
        length, place = varint_at(content, place + 1)
        yield number, content[place : place + length]
        place += length


def feature_of(content: bytes) -> list[Any]:
    for kind, values in fields(content):
        if kind == 1:
            return [value for _, value in fields(values)]
        packed = dict(fields(values)).get(1, b"")
        if kind == 2:
            return list(struct.unpack(f"<{len(packed) // 4}f", packed))
        numbers, place = [], 0
        while place < len(packed):
            value, place = varint_at(packed, place)
            numbers.append(value - 2**64 if value >= 2**63 else value)
        return numbers
    return []


class TfRecords(Adapter):
    kind = "tfrecord"
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
        "a text": Damage(rewritten(lambda content: b"<html>404</html>"), "expected"),
        "cut": Damage(rewritten(lambda content: content[:-3]), "expected", range(ROWS - 1)),
        "a byte": Damage(rewritten(lambda content: overwritten(content, 14, 15)), "check sum", range(1, ROWS)),
    }
    not_applicable = {
        "columns": "the kind has no such setting: the steps and the sink choose columns",
        "where": "the kind has no such setting: the step filter_rows selects rows",
    }

    def rows(self, count: int = ROWS, first: int = 0) -> pa.Table:
        rows = super().rows(count, first)
        return rows.set_column(1, "text", rows["text"].cast(pa.binary()))

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        path = folder / f"{name}.tfrecord"
        path.parent.mkdir(parents=True, exist_ok=True)
        more = [
            {key: value.encode() if isinstance(value, str) else value for key, value in row.items()}
            for row in rows.to_pylist()
        ]
        path.write_bytes(b"".join(record(example(**row)) for row in more))
        return path

    def source(self, folder: Path, **settings: Any) -> TfRecord:
        return TfRecord(path=str(folder), **settings)

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        rows: list[dict[str, list[Any]]] = []
        for path in sorted(folder.rglob("*.tfrecord")):
            content, place = path.read_bytes(), 0
            while place < len(content):
                length = struct.unpack_from("<Q", content, place)[0]
                [(_, entries)] = fields(content[place + 12 : place + 12 + length])
                pairs = [dict(fields(entry)) for _, entry in fields(entries)]
                rows.append({pair[1].decode(): feature_of(pair[2]) for pair in pairs})
                place += 16 + length
        single = {name for row in rows for name in row if all(len(other[name]) == 1 for other in rows)}
        # A feature of one value in every row is that value; one without values is null.
        return [{name: values[0] if name in single else values or None for name, values in row.items()} for row in rows]


ADAPTER = TfRecords()
