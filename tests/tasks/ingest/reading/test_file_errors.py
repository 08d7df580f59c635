"""Whose fault an error is: a file's, which costs its rows, or the storage's, which a later attempt may find well."""

import bz2
import errno
import gzip
import io
import lzma
import ssl
import zlib
from collections.abc import Callable

import aiohttp
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import NoRegionError, ParamValidationError

from overnight.tasks.errors import InputError, RowError, ServiceUnavailable
from overnight.tasks.ingest.reading.file_errors import is_corrupt_file, translate_corruption, translate_panics
from overnight.tasks.ingest.source import Source
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.media_files import Images
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.state.read_plan import PENDING
from tests.tasks.faulty_s3 import FaultyS3

UNIT = {"unit": 7, "path": "a", "uri": "s3://bucket/a", "first_row": 0, "rows": None}


@pytest.mark.parametrize("kind", [Csv, Jsonl, Parquet, Images])
def test_no_row_is_blamed_for_a_storage_that_fails(
    kind: type[Source], store: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.always = "fail"
    monkeypatch.setenv("OVERNIGHT_STORAGE_RETRY_SECONDS", "0.3")
    unit = UNIT | {"size": 9, "version": "", "row_group": None, "settled": None}
    unit |= {"rows": 1, "row_group": 0} if kind in (Parquet, Images) else {}
    source = kind(path="s3://bucket", anonymous=True)
    with pytest.raises(ServiceUnavailable, match="Internal Server Error"):
        list(source.read(pa.Table.from_pylist([unit], schema=PENDING), None))


WHOLE = gzip.compress(bytes(range(256)) * 100)
DAMAGED: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "a gzip that ends early": (WHOLE[:-20], gzip.decompress),
    "a gzip with other bytes": (WHOLE[:15] + b"\xff" * 9 + WHOLE[24:], gzip.decompress),
    "Parquet": (b"PAR1", lambda content: pq.ParquetFile(io.BytesIO(content))),
    "lzma": (b"\xfd7zXZ\0" + b"\xff" * 99, lzma.decompress),
    "bz2": (b"BZh9" + b"\xff" * 99, bz2.decompress),
}


@pytest.mark.parametrize(("content", "read"), DAMAGED.values(), ids=DAMAGED)
def test_a_file_is_to_blame_for_what_a_library_says_of_its_bytes(
    content: bytes, read: Callable[[bytes], object]
) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever the library raises
        read(content)
    assert is_corrupt_file(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        zlib.error("bad"), FileNotFoundError(errno.ENOENT, "gone"), PermissionError("forbidden"),
        OSError(errno.ELOOP, "a link that leads to itself"), ParamValidationError(report="no bucket"),
        ValueError("no number"), KeyError("no such name"), IndexError(), MemoryError(),
    ],
)  # fmt: skip
def test_a_file_is_to_blame_for_what_is_wrong_with_it_or_its_path(error: Exception) -> None:
    assert is_corrupt_file(error)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "input/output error"), OSError(errno.EBUSY, "slow down"), ConnectionResetError(),
        TimeoutError(), BrokenPipeError(), InputError("of the job"), ModuleNotFoundError("a library"),
        OSError(errno.ENOSPC, "disk full"), ssl.SSLError(1, "certificate"), httpx.ConnectError("no such name"),
        NoRegionError(), aiohttp.InvalidURL("http://"),
    ],
)  # fmt: skip
def test_a_file_is_not_to_blame_for_what_is_wrong_elsewhere(error: Exception) -> None:
    assert not is_corrupt_file(error)


def test_what_pyarrow_cannot_read_is_not_called_damage() -> None:
    words = r"^pyarrow [\d.]+ cannot read a whole file: Nested data"
    with pytest.raises(RowError, match=words), translate_corruption("a whole file"):
        raise pa.ArrowNotImplementedError("Nested data conversions not implemented")


def test_a_panic_of_a_library_in_rust_is_an_error_like_others() -> None:
    panic = type("PanicException", (BaseException,), {})  # as PyO3 makes it
    with pytest.raises(RuntimeError, match="the library broke off: index out of range"), translate_panics():
        raise panic("index out of range")
    with pytest.raises(KeyboardInterrupt), translate_panics():
        raise KeyboardInterrupt
