"""obstore 0.12, a Rust library, as a client of S3: its settings, and the meaning of its errors.

obstore takes a fifth of the CPU time of s3fs, and its threads wait without Python's lock. It tries a request once: s3fs
retries it, with a log line. Address, region and credentials come from s3fs's client, so one configuration is enough.
"""

import contextlib
import errno
import os
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obstore.exceptions import GenericError, PermissionDeniedError, PreconditionError
from obstore.store import S3Store

from overnight.tasks.storage.file_info import ObjectChanged
from overnight.tasks.storage.s3_retries import LOG_EVERY_SECONDS, say
from overnight.tasks.storage.transient_errors import is_passing_status

if TYPE_CHECKING:
    from obstore.store import ClientConfig

ASK_AGAIN = timedelta(minutes=5)  # botocore knows when credentials must be renewed
# A server that is silent for 15 s fails, as with s3fs; a large body may take longer.
TIMEOUTS: "ClientConfig" = {"connect_timeout": "5s", "read_timeout": "15s", "timeout": "1day"}

_STATUS = re.compile(r"status code: (([1-5]\d\d)[\w ]*)")
_used_in: list[int] = []  # the process in which obstore started: a fork lacks its threads, so requests hang there


def open_store(filesystem: Any, bucket: str) -> S3Store:
    """Return obstore's client of a bucket, with the address and the credentials of `filesystem`, a `PatientS3`."""
    client = filesystem.connect()
    address = client.meta.endpoint_url
    options: ClientConfig = {**TIMEOUTS, "allow_http": address.startswith("http://")}
    if certificates := filesystem.session.get_config_variable("ca_bundle"):
        options["root_certificate"] = Path(certificates).read_bytes()

    def credentials() -> Any:
        return {**filesystem.ask_for_credentials(), "expires_at": datetime.now(UTC) + ASK_AGAIN}

    return S3Store(
        bucket,
        endpoint=address,
        region=client.meta.region_name or "us-east-1",
        client_options=options,
        retry_config={"max_retries": 0},
        **({"skip_signature": True} if filesystem.anon else {"credential_provider": credentials}),
    )


def is_usable() -> bool:
    """Return True if this process may use obstore. A fork of a process that used it may not: requests would hang."""
    if not _used_in:
        _used_in.append(os.getpid())
    return _used_in[0] == os.getpid()


def raise_known(error: Exception, has_answered: bool) -> None:
    """Raise Python's error for an error of obstore. Return if s3fs could do better, as before any request succeeded."""
    if isinstance(error, FileNotFoundError):
        raise FileNotFoundError(errno.ENOENT, message(error)) from error
    if isinstance(error, PreconditionError):
        raise ObjectChanged(message(error)) from error
    if isinstance(error, PermissionDeniedError) and has_answered:
        raise PermissionError(errno.EACCES, message(error)) from error


def passing_problem(error: Exception) -> str:
    """Return a phrase on an error of obstore that may pass, such as `503 Slow Down`; empty for other errors."""
    if not isinstance(error, GenericError):
        return ""
    status = _STATUS.search(str(error))
    if status and is_passing_status(int(status[2])):
        return status[1].strip()
    return "no whole answer" if "HTTP error" in str(error) and not status else ""


def message(error: Exception) -> str:
    """Return the message of an error of obstore without its debug part."""
    return str(error).partition("\n\nDebug source")[0]


@contextlib.contextmanager
def log_wait(request: str) -> Iterator[None]:
    """Log a line if the body takes longer than `LOG_EVERY_SECONDS` (10 s)."""
    sentence = f"waiting for storage: {request} has taken {LOG_EVERY_SECONDS:.0f} s so far"
    timer = threading.Timer(LOG_EVERY_SECONDS, say, [sentence])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
