"""obstore 0.12, a Rust library, as a client of S3: its settings, and the meaning of its errors.

obstore takes a fifth of the CPU time of s3fs, and its threads wait without Python's lock. It tries a request once, and
`retried` repeats it. Address, region and credentials come from s3fs's client, so one configuration is enough.
"""

import errno
import itertools
import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
from obstore.exceptions import (
    BaseError,
    GenericError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from overnight.tasks.errors import AccessDenied
from overnight.tasks.storage.file_info import ObjectChanged
from overnight.tasks.storage.s3_retries import seconds_to_wait
from overnight.tasks.storage.transient_errors import is_passing_status

if TYPE_CHECKING:
    from obstore.store import ClientConfig

T = TypeVar("T")
ASK_AGAIN = timedelta(minutes=5)  # botocore knows when credentials must be renewed
# A server that is silent for 15 s fails, as with s3fs; a large body may take longer.
TIMEOUTS: "ClientConfig" = {"connect_timeout": "5s", "read_timeout": "15s", "timeout": "1day"}

_STATUS = re.compile(r"status code: (([1-5]\d\d)[\w ]*)")
_CODE, _MESSAGE = re.compile(r"<Code>(\w+)</Code>"), re.compile(r"<Message>([^<]+)</Message>")
_WITHOUT_PATH = re.compile(r"(^|/)\.{0,2}(/|$)|[\x00-\x1f\x7f]")
_used_in: list[int] = []  # the process in which obstore started: a fork lacks its threads, so requests hang there


def open_store(filesystem: Any, bucket: str) -> S3Store:
    """Return obstore's client of a bucket, with the address and the credentials of `filesystem`, a `PatientS3`."""
    client = filesystem.client_of(bucket)
    address = client.meta.endpoint_url
    is_virtual = (client.meta.config.s3 or {}).get("addressing_style") == "virtual"  # in AWS's configuration
    if is_virtual:
        address = address.replace("://", f"://{bucket}.", 1)
    options: ClientConfig = {**TIMEOUTS, "allow_http": address.startswith("http://")}
    if certificates := filesystem.session.get_config_variable("ca_bundle"):
        options["root_certificate"] = Path(certificates).read_bytes()

    def credentials() -> Any:
        return {**filesystem.ask_for_credentials(), "expires_at": datetime.now(UTC) + ASK_AGAIN}

    if not filesystem.anon:
        credentials()  # botocore's error names what is missing
    return S3Store(
        bucket,
        endpoint=address,
        region=client.meta.region_name or "us-east-1",
        virtual_hosted_style_request=is_virtual,
        client_options=options,
        retry_config={"max_retries": 0},
        **({"skip_signature": True} if filesystem.anon else {"credential_provider": credentials}),
    )


def has_path(key: str) -> bool:
    """Return True if obstore reads exactly this key. It drops outer slashes, and refuses `a//b`, `a/../b` and tabs."""
    return not _WITHOUT_PATH.search(key)


def is_usable() -> bool:
    """Return True if this process may use obstore. A fork of a process that used it may not: requests would hang."""
    if not _used_in:
        _used_in.append(os.getpid())
    return _used_in[0] == os.getpid()


def is_trusted(store: S3Store) -> bool:
    """Return False if obstore refuses the server's certificate: one that signed itself, or of an unknown authority.

    s3fs trusts the first if AWS_CA_BUNDLE has it, and has a list of authorities of its own.
    """
    if str(store.config["endpoint"]).startswith("http://"):
        return True
    try:
        obstore.head(store, "certificate")
    except (BaseError, FileNotFoundError) as error:
        return "InvalidCertificate" not in str(error)
    return True


def retried(operation: str, bucket: str, key: str, call: Callable[[], T]) -> T:
    """Return the result of `call`, a request by obstore. Repeat it while waiting may help. Raise Python's errors."""
    request, first_failure = f"{operation} on s3://{bucket}/{key}", None
    for tries in itertools.count(1):
        try:
            return call()
        except InvalidPathError:  # of a listing; s3fs can list the key
            raise
        except (BaseError, FileNotFoundError) as error:
            problem = _passing_problem(error)
            if not problem:
                raise _python_error(error, request) from error
            first_failure = first_failure or time.monotonic()
            time.sleep(seconds_to_wait(request, f"s3://{bucket}", tries, first_failure, problem, problem))
    raise AssertionError


def _passing_problem(error: Exception) -> str:
    """Return a phrase on an error of obstore that may pass, such as `503 Slow Down`; empty for other errors."""
    text = str(error)
    if status := _STATUS.search(text):
        code = _CODE.search(text)
        is_passing = is_passing_status(int(status[2]), code[1] if code else "")
        return status[1].strip() if is_passing else ""
    if not isinstance(error, GenericError):
        return ""
    return "no whole answer" if "HTTP error" in text or "invalid list response" in text else ""


def _python_error(error: Exception, request: str) -> Exception:
    """Return Python's error for an error of obstore, with the server's own message if it sent one."""
    text = str(error).partition("\n\nDebug source")[0]
    answer, status = _MESSAGE.search(text), _STATUS.search(text)
    message = answer[1] if answer else text
    code = status[2] if status else ""  # a listing's errors have no other kind
    if status and not answer and code in ("401", "403"):  # an answer to HEAD has no message
        message = status[1]
    if "<Code>ExpiredToken</Code>" in text:  # no fault of the object, so it does not cost its row
        advice = "Nothing was published. Renew the credentials, then run again."
        return AccessDenied(f"no permission for {request}: {message.rstrip('.')}. {advice}")
    if isinstance(error, FileNotFoundError) or code == "404":
        return FileNotFoundError(message)
    if isinstance(error, PreconditionError):
        return ObjectChanged(message)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or code in ("401", "403"):
        return PermissionError(message)
    return OSError(errno.EIO, message)
