"""TFRecord files, their bytes written by hand from TensorFlow's description of the format."""

import gzip
import struct
from collections.abc import Callable

import pytest

from overnight.tasks.ingest.sources import tfrecord
from overnight.tasks.ingest.sources.tfrecord import TfRecord
from tests.contracts.sources.adapters.tfrecord import example, field, record
from tests.tasks.ingest.conftest import Read, overwritten

Reader = Callable[..., Read]


def file(*contents: bytes) -> bytes:
    return b"".join(map(record, contents))


TEN = [example(n=n, name=b"row %d" % n, x=[n / 2, 1.0]) for n in range(10)]
SIZE = len(record(TEN[0]))


def test_a_record_beyond_the_bound_is_quarantined_alone(read: Reader) -> None:
    large = example(n=9, name=b"x" * 200, x=[1.0, 2.0])
    found = read(TfRecord, {"a.tfrecord": file(TEN[0], large, TEN[1])}, max_row_bytes=SIZE)
    assert list(found.good) == ["a.tfrecord#0", "a.tfrecord#2"]
    expected = f"expected a record of at most max_row_bytes = {SIZE} bytes, found {len(large)}. Raise source.max_row"
    assert found.bad["a.tfrecord#1"].startswith(expected)


def test_the_check_sum_is_the_one_that_tensorflow_writes(read: Reader) -> None:
    # Written by TensorFlow: tf.io.TFRecordWriter(...).write(b"") is a length of 0 and the sums of it and of nothing.
    assert record(b"") == bytes.fromhex("0000000000000000 29039807 d8ea82a2")


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecords", "b.tfrecord.gz", "packed.tfrecord"])
def test_features_are_columns(read: Reader, name: str) -> None:
    content = file(*TEN)
    found = read(TfRecord, {name: gzip.compress(content) if name != "a.tfrecord" else content}, texts=["name"])
    assert {row_id: (row["n"], row["name"], row["x"]) for row_id, row in found.good.items()} == {
        f"{name}#{n}": (n, f"row {n}", [n / 2, 1.0]) for n in range(10)
    }


def test_what_is_first_met_late_does_not_change_what_is_known(read: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord, "SAMPLE_ROWS", 1)
    monkeypatch.setattr(tfrecord, "SAMPLE_FILES", 1)
    found = read(TfRecord, {"a.tfrecord": file(example(n=1), example(n=[2, 3]), example(n=2.0), example(n=4, m=5))})
    assert [(row["n"], row["m"]) for row in found.good.values()] == [(1, None), (4, [5])]
    assert found.bad == {
        "a.tfrecord#1": "feature n: expected int64, found 2 of int64",
        "a.tfrecord#2": "feature n: expected int64, found 1 of float",
    }


NO_EXAMPLE = "expected a tf.train.Example, found {} bytes that do not parse: Error parsing message"
NO_RECORDS = {
    "text": (record(b"no example"), NO_EXAMPLE.format(10)),
    "cut-example": (record(TEN[3][:-1]), NO_EXAMPLE.format(51)),
    "broken-list": (
        record(field(1, field(1, field(1, b"n") + field(2, field(3, field(1, b"\xff")))))),
        NO_EXAMPLE[:30],
    ),
    "name-in-latin-1": (record(field(1, field(1, field(1, b"gr\xfcn")))), "String field had bad UTF-8"),
    "text-in-latin-1": (record(example(name=b"gr\xfcn")), "feature name: expected text in UTF-8, found b'gr\\xfcn'"),
    "fraction": (record(example(n=1.5)), "feature n: expected int64, found 1 of float"),
    "number": (record(example(name=1)), "feature name: expected string, found 1 of int64"),
    "other-list": (record(example(x=[1, 2])), "feature x: expected list<item: float>, found 2 of int64"),
    "changed": (overwritten(record(TEN[3]), 20, 21), "a record of 52 bytes does not match its check sum"),
}


@pytest.mark.parametrize(("broken", "reason"), NO_RECORDS.values(), ids=NO_RECORDS)
def test_a_record_that_cannot_be_read_is_quarantined_alone_with_the_reason(
    read: Reader, broken: bytes, reason: str
) -> None:
    found = read(
        TfRecord, {"a.tfrecord": file(*TEN), "b.tfrecord": file(TEN[0]) + broken + file(TEN[4])}, texts=["name"]
    )
    assert found.column("n") == [*range(10), 0, 4]
    assert list(found.bad) == ["b.tfrecord#1"]
    assert reason in found.bad["b.tfrecord#1"]


def test_a_broken_record_at_the_beginning_does_not_change_what_the_others_are(read: Reader) -> None:
    found = read(TfRecord, {"a.tfrecord": record(b"no example") + file(*TEN)})
    assert [(row["n"], row["x"]) for row in found.good.values()] == [(n, [n / 2, 1.0]) for n in range(10)]


WHOLE = file(*TEN)
PACKED = gzip.compress(WHOLE, mtime=0)
LENGTH = "expected the length of a record and its check sum, found b'"
PACKING = "expected a whole gzip file: "


def of_length(length: int, content: bytes = TEN[0]) -> bytes:
    """A record that says another length than it has, with a right check sum."""
    said = struct.pack("<Q", length)
    return said + record(said)[-4:] + content + record(content)[-4:]


HOSTILE = {
    "text.tfrecord": (b"no records at all", 0, LENGTH + "no records a'"),
    "short.tfrecord": (b"short", 0, "expected the length of a record, found 5 bytes at the end of the file"),
    "cut-in-length.tfrecord": (WHOLE[: SIZE * 3 + 5], 3, "expected the length of a record, found 5 bytes at the end"),
    "cut-in-record.tfrecord": (WHOLE[: SIZE * 3 + 20], 3, "expected a record of 52 bytes and its check sum, found 8 "),
    # Of a size that no memory holds.
    "length.tfrecord": (WHOLE[: SIZE * 4 + 7] + b"\x7f" + WHOLE[SIZE * 4 + 8 :], 4, LENGTH),
    "length-sum.tfrecord": (overwritten(WHOLE, SIZE * 4 + 8, SIZE * 4 + 12), 4, LENGTH),
    "unpacked.tfrecord.gz": (b"\x1f\x8bno gzip", 0, PACKING),
    "sum.tfrecord.gz": (overwritten(PACKED, -8, -4), 10, PACKING + "CRC check failed"),
    "huge.tfrecord": (of_length(2**40), 0, "expected a record of 1,099,511,627,776 bytes and its check sum"),
    "shorter.tfrecord": (of_length(9), 0, "check sum"),
    "largest.tfrecord": (of_length(2**64 - 1), 0, "expected"),
    "feature.tfrecord": (record(field(1, b"\x0a\xff\xff\xff\x7f")), 0, "expected a tf.train.Example"),
}


def test_a_packed_file_that_is_cut_off_keeps_records_and_an_empty_file_has_none(read: Reader) -> None:
    packed = gzip.compress(file(*TEN * 50))
    found = read(TfRecord, {"a.tfrecord.gz": packed[: len(packed) // 2], "b.tfrecord": b""})
    assert (len(found.bad), found.counts["b.tfrecord"]) == (1, 0)
    assert 0 < len(found.good) < 500
