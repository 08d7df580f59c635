"""What an error of storage says: that it may pass, that somebody must allow it, that there is no space."""

import errno
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from botocore import exceptions as boto
from s3fs.errors import translate_boto_error

from overnight.tasks.errors import AccessDenied, ServiceUnavailable
from overnight.tasks.storage.error_translation import translate_storage_errors
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.transient_errors import is_forbidden, is_full, is_passing


def answer(status: int, code: str) -> Exception:
    """An S3 server's answer, as s3fs hands it on."""
    response = {"Error": {"Code": code, "Message": "why"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return translate_boto_error(boto.ClientError(response, "PutObject"))


PASSING = [
    answer(503, "SlowDown"),
    answer(500, "InternalError"),
    answer(502, "unheard of"),
    answer(429, "TooManyRequests"),
    answer(400, "RequestTimeout"),
    answer(409, "ConditionalRequestConflict"),
    boto.EndpointConnectionError(endpoint_url="http://x"),
    boto.ReadTimeoutError(endpoint_url="http://x"),
    boto.ConnectionClosedError(endpoint_url="http://x"),
    aiohttp.ServerDisconnectedError(),
    aiohttp.ClientPayloadError(),
    OSError(errno.ECONNREFUSED, "refused"),
    OSError(errno.EHOSTUNREACH, "no route"),
    ConnectionResetError(),
    TimeoutError(),
]
LASTING = [
    answer(403, "AccessDenied"),
    answer(404, "NoSuchKey"),
    answer(412, "PreconditionFailed"),
    answer(501, "NotImplemented"),
    answer(507, "XMinioStorageFull"),
    boto.NoCredentialsError(),
    boto.SSLError(endpoint_url="https://x", error="certificate"),
    FileNotFoundError(errno.ENOENT, "gone"),
    PermissionError(errno.EACCES, "no"),
    OSError(errno.ENOSPC, "full"),
    OSError(errno.EIO, "input/output error"),
    ValueError("ours"),
    ServiceUnavailable("waited already"),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_waiting_may_help(error: Exception) -> None:
    assert is_passing(error)
    with pytest.raises(ServiceUnavailable, match="the place"), translate_storage_errors("write", "the place"):
        raise error


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_waiting_does_not_help(error: Exception) -> None:
    assert not is_passing(error)


def test_who_must_act_is_known() -> None:
    forbidden = [error for error in PASSING + LASTING if is_forbidden(error)]
    assert [type(error) for error in forbidden] == [PermissionError, boto.NoCredentialsError, PermissionError]
    full = [error for error in PASSING + LASTING if is_full(error)]
    assert [error.errno for error in full] == [errno.EIO, errno.ENOSPC]  # type: ignore[attr-defined]


def test_what_only_the_caller_understands_passes_as_it_is() -> None:
    with pytest.raises(FileNotFoundError), translate_storage_errors("read", "the place"):
        raise FileNotFoundError(errno.ENOENT, "gone")


def test_a_full_disk_and_a_place_where_nobody_may_write_are_named(tmp_path: Path) -> None:
    with (
        open("/dev/full", "wb", 0) as file,
        pytest.raises(AccessDenied, match=rf"the place: no space left \([\d,]+ bytes free in {tmp_path}\)"),
        translate_storage_errors("write", "the place", str(tmp_path / "not" / "yet")),
    ):
        file.write(b"x")
    with pytest.raises(AccessDenied, match="no permission to write /sys/kernel/overnight-test"):
        Location("/sys/kernel/overnight-test").write_bytes(b"x")


def test_errors_are_told_apart_without_any_library_of_a_store() -> None:
    modules = "overnight.tasks.storage.transient_errors, overnight.tasks.storage.error_translation"
    code = f"import sys, {modules}; assert not {{'s3fs', 'botocore', 'fsspec'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
