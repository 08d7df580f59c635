"""Whose fault an error is: a file's, which costs its rows, or the storage's, which a later attempt may find well."""

import bz2
import errno
import gzip
import http.server
import io
import lzma
import ssl
import threading
import zlib
from collections.abc import Callable, Iterator

import aiohttp
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import NoRegionError, ParamValidationError

from overnight.tasks.errors import InputError, RowError, ServiceUnavailable
from overnight.tasks.ingest.reading.table_blocks import is_corrupt_file, translate_corruption, translate_panics
from overnight.tasks.ingest.reading.unit_rows import counted_rows
from overnight.tasks.ingest.source import Source
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.media_files import Images
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.state.manifest import UNITS
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.storage.s3 import PatientS3


@pytest.fixture
def broken_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An S3 server that answers every request with an internal error."""

    class Broken(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<Error><Code>InternalError</Code><Message>Internal Server Error</Message></Error>"
            self.send_response(500)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OVERNIGHT_STORAGE_RETRY_SECONDS", "0.3")
    PatientS3.clear_instance_cache()
    yield
    PatientS3.clear_instance_cache()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("kind", [Csv, Jsonl, Parquet, Images])
@pytest.mark.usefixtures("broken_store")
def test_no_row_is_blamed_for_a_storage_that_fails(kind: type[Source]):
    unit = {
        "unit": 0, "path": "a", "uri": "s3://bucket/a", "size": 9, "version": "", "first_row": 0, "rows": None,
        "row_group": None, "settled": None,
    }  # fmt: skip
    if kind is Parquet or kind is Images:
        unit |= {"rows": 1, "row_group": 0}
    source = kind(path="s3://bucket", anonymous=True)
    with pytest.raises(ServiceUnavailable, match="Internal Server Error"):
        list(source.read(pa.Table.from_pylist([unit], schema=PENDING), None))


def damage_of(content: bytes, read: Callable[[io.BytesIO], object]) -> Exception:
    try:
        read(io.BytesIO(content))
    except Exception as error:
        return error
    raise AssertionError("read without an error")


def test_a_file_is_to_blame_for_what_is_wrong_with_its_bytes():
    whole = gzip.compress(bytes(range(256)) * 100)
    assert is_corrupt_file(damage_of(whole[:-20], lambda file: gzip.GzipFile(fileobj=file).read()))
    assert is_corrupt_file(
        damage_of(whole[:15] + b"\xff" * 9 + whole[24:], lambda file: gzip.GzipFile(fileobj=file).read())
    )
    assert is_corrupt_file(damage_of(b"PAR1", pq.ParquetFile))
    assert is_corrupt_file(zlib.error("bad"))
    assert is_corrupt_file(FileNotFoundError(errno.ENOENT, "gone"))
    assert is_corrupt_file(PermissionError("forbidden"))
    assert is_corrupt_file(OSError(errno.ELOOP, "a link that leads to itself"))
    assert is_corrupt_file(ParamValidationError(report="no bucket"))
    assert is_corrupt_file(damage_of(b"\xfd7zXZ\0" + b"\xff" * 99, lambda file: lzma.decompress(file.read())))
    assert is_corrupt_file(damage_of(b"BZh9" + b"\xff" * 99, lambda file: bz2.decompress(file.read())))


@pytest.mark.parametrize("error", [ValueError("no number"), KeyError("no such name"), IndexError(), MemoryError()])
def test_whatever_else_a_reader_raises_about_a_file_is_that_files(error: Exception):
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
def test_a_file_is_not_to_blame_for_what_is_wrong_elsewhere(error: Exception):
    assert not is_corrupt_file(error)


def test_rows_that_a_part_declares_and_does_not_have_are_told_as_that():
    unit = {"unit": 0, "path": "a", "uri": "a", "first_row": 10, "rows": 5, "row_group": 1}
    [data, lost] = counted_rows(unit, iter([pa.table({"x": [1, 2]})]))
    assert data["row_id"].to_pylist() == ["a#10", "a#11"]
    assert lost["row_id"].to_pylist() == ["a#12", "a#13", "a#14"]
    told = "expected 5 rows in this part of the file, as it declares, found 2"
    assert set(lost["__error_message"].to_pylist()) == {told}


def test_what_pyarrow_cannot_read_is_not_called_damage():
    words = r"^pyarrow [\d.]+ cannot read a whole file: Nested data"
    with pytest.raises(RowError, match=words), translate_corruption("a whole file"):
        raise pa.ArrowNotImplementedError("Nested data conversions not implemented")


def test_units_have_one_schema():
    assert PENDING.names[: len(UNITS)] == UNITS.names


def test_a_panic_of_a_library_in_rust_is_an_error_like_others():
    panic = type("PanicException", (BaseException,), {})  # as PyO3 makes it
    with pytest.raises(RuntimeError, match="the library broke off: index out of range"), translate_panics():
        raise panic("index out of range")
    with pytest.raises(KeyboardInterrupt), translate_panics():
        raise KeyboardInterrupt
