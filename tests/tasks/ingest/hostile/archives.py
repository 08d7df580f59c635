"""Hostile shards of WebDataset and files of TFRecord."""

import io
import struct
import tarfile

from overnight.tasks.ingest.sources.tfrecord import TfRecord
from overnight.tasks.ingest.sources.webdataset import WebDataset
from tests.tasks.ingest.hostile.cases import BOMB_BYTES, Case, Family, cases, endless
from tests.tasks.ingest.sources import test_tfrecord, test_webdataset
from tests.tasks.ingest.sources.test_tfrecord import TEN, example, field, masked, record

SHARD = test_webdataset.tar(test_webdataset.pairs(20))


def of_length(length: int, content: bytes = TEN[0]) -> bytes:
    """A record that says another length than it has, with a right check sum."""
    said = struct.pack("<Q", length)
    return said + masked(said) + content + masked(content)


def of_size(size: int, name: str = "0.bin") -> bytes:
    """A shard whose first file, of 512 bytes, is declared to have another size, with a right check sum."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for place in (name, "1.bin"):
            member = tarfile.TarInfo(place)
            member.size = 512
            archive.addfile(member, io.BytesIO(b"x" * 512))
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT) + file.getvalue()[512:]


TFRECORD = Family(
    TfRecord,
    "tfrecord",
    test_tfrecord.WHOLE,
    10,
    cases(test_tfrecord.NO_FILES),
    {
        "length.tfrecord": Case(of_length(2**40), 0, "expected a record of 1,099,511,627,776 bytes and its check sum"),
        "longer.tfrecord": Case(of_length(10**6), 0, "expected a record of 1,000,000 bytes and its check sum"),
        "shorter.tfrecord": Case(of_length(9), 0, "check sum"),
        "of-no-length.tfrecord": Case(of_length(0), 0, "check sum"),
        "largest.tfrecord": Case(of_length(2**64 - 1), 0, "expected"),
        "feature.tfrecord": Case(record(field(1, b"\x0a\xff\xff\xff\x7f")), 0, "expected a tf.train.Example"),
        "other-kind.tfrecord": Case(record(example(n=b"1")), 0, "feature n: expected"),
        "unpacked.tfrecord.gz": Case(b"\x1f\x8b" + test_tfrecord.WHOLE, 0, "whole gzip file"),
    },
    {"bomb.tfrecord.gz": Case(endless(of_length(2**29)[:12]), 0, "expected a record of at most max_row_bytes")},
    {"texts": ["name"], "max_row_bytes": 2**22},
)
WEBDATASET = Family(
    WebDataset,
    "tar",
    SHARD,
    20,
    cases(test_webdataset.NO_SHARDS),
    {
        "larger.tar": Case(of_size(2**20), 0, "expected a whole tar archive"),
        "huge.tar": Case(of_size(2**60), 0, "expected"),
        "smaller.tar": Case(of_size(1), 2, ""),
        "negative.tar": Case(of_size(-5), 0, "expected"),
        "number.tar": Case(test_webdataset.tar({"0.cls": b"seven"}), 0, "expected a whole number of 64 bits"),
        "text.tar": Case(test_webdataset.tar({"0.txt": b"gr\xfcn"}), 0, "expected text in UTF-8"),
        "folder.tar": Case(of_size(512, "0.d/"), 1, ""),
    },
    {"bomb.tar.gz": Case(endless(of_size(BOMB_BYTES)[:512]), 0, "of at most max_row_bytes")},
    {"max_row_bytes": 2**22},
)
FAMILIES = {"tfrecord": TFRECORD, "webdataset": WEBDATASET}
