"""Hostile texts, CSV files and JSON Lines."""

import gzip
import struct

from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.text import Text
from tests.contracts.sources.adapters.text import NO_TEXTS
from tests.tasks.ingest.hostile.cases import Case, Family, cases, endless
from tests.tasks.ingest.sources import test_csv, test_jsonl

ZSTD, MARK = b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf"
CSV, JSONL = test_csv.numbers(10), test_jsonl.MANY


def of_declared_size(content: bytes, size: int) -> bytes:
    """`content` packed by gzip, whose last bytes say another size."""
    return gzip.compress(content, mtime=0)[:-4] + struct.pack("<I", size)


TEXT = Family(
    Text,
    "txt",
    b"well",
    1,
    cases({f"{name}.txt": (content, 0, words) for name, (content, words) in NO_TEXTS.items()}),
    {
        "utf-16-mark.txt": Case(b"\xff\xfewell", 0, "found b'\\xff\\xfewell' at byte 0"),
        "utf-8-mark.txt": Case(MARK + "grüße".encode("latin-1"), 0, "expected text in utf-8"),
        "declared-utf-8.xml": Case('<?xml encoding="utf-8"?>ü'.encode("latin-1"), 0, "found b'\\xfc'"),
        "declared-latin-1.xml": Case('<?xml encoding="latin-1"?>ü'.encode(), 1, ""),
        "declared-utf-8.html": Case('<meta charset="utf-8">日'.encode("shift_jis"), 0, "found b'\\x93\\xfa'"),
        "no-page.html": Case(b"\x1f\x8b\x08 packed", 0, "found b'\\x8b"),
    },
)
CSV_FILES = Family(
    Csv,
    "csv",
    CSV,
    10,
    cases(test_csv.NO_FILES),
    {
        "fewer-fields.csv": Case(b"a,b,c\n1,2\n", 0, "expected 3 fields, found 2: 1,2"),
        "more-fields.csv": Case(b"a\n1,2\n", 0, "expected 1 fields, found 2: 1,2"),
        "no-tabs.tsv": Case(b"a,b\n1,2\n", 0, "if a comma separates the columns"),
        "utf-16-mark.csv": Case(b"\xff\xfea,b\n1,2\n", 0, "found the byte order mark of UTF-16"),
        "open-quote.csv": Case(b'"a,b\n1,2\n3,4\n', 0, "expected"),
        "other-types.csv": Case(b"a,b\none,two\n", 0, "column ", fits_alone=True),
        "size.csv.gz": Case(of_declared_size(CSV, 7), 10, "expected a whole gzip file: Incorrect length"),
        "zstd.csv.gz": Case(ZSTD + CSV, 0, "expected a whole gzip file: Not a gzipped file"),
    },
    {"bomb.csv.gz": Case(endless(b"a,b\n"), 0, "expected a line of at most")},
)
JSONL_FILES = Family(
    Jsonl,
    "jsonl",
    JSONL,
    1500,
    cases(test_jsonl.NO_FILES),
    {
        "utf-16-mark.jsonl": Case(b'\xff\xfe{"a":1}\n', 0, "found the byte order mark of UTF-16"),
        "array-of-none.json": Case(b'[\n{"a":1},\n', 1, "expected"),
        "half-a-character.jsonl": Case(b'{"a":"\\ud800"}\n', 0, "expected a line that is a JSON object"),
        "number-of-no-size.jsonl": Case(b'{"a":1e999}\n', 0, "expected"),
        "size.jsonl.gz": Case(of_declared_size(JSONL, 7), 1500, "whole gzip file: Incorrect length"),
        "zstd.jsonl.gz": Case(ZSTD + JSONL, 0, "whole gzip file: Not a gzipped file"),
    },
    {"bomb.jsonl.gz": Case(endless(b'{"a":"'), 0, "expected a line of at most")},
    {"max_row_bytes": 2**22},
)
FAMILIES = {"text": TEXT, "csv": CSV_FILES, "jsonl": JSONL_FILES}
