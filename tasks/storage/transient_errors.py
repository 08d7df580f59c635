"""Decides whether an error of storage, or of any service, may pass by itself, or whether a user must act.

Errors are recognised by errno, by HTTP status and by class name, so that no library of a store is imported.
"""

import errno
from typing import Any

_ERRNOS = frozenset(
    {
        *(errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT, errno.EBUSY),
        *(errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.ESTALE, errno.EREMOTEIO),
    }
)
# Base classes in botocore, aiohttp, urllib3, requests, httpx and the Azure SDK, and Python's own.
_CLASSES = frozenset(
    {
        *("ConnectionError", "TimeoutError", "HTTPClientError", "ResponseParserError", "IncompleteReadError"),
        *("ClientConnectionError", "ClientPayloadError", "IncompleteRead", "ProtocolError", "Timeout"),
        *("ChunkedEncodingError", "ServiceRequestError", "ServiceResponseError"),
        "TransportError",  # of httpx, which the hub's client uses, and of Google's library
    }
)
_LASTING = frozenset({"SSLError", "FileExpired"})  # a wrong certificate; s3fs's name for an object that was replaced
_CODES = frozenset(
    {
        *("RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "RequestThrottled"),
        *("OperationAborted", "ConditionalRequestConflict"),
    }
)
_MISSING_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"})


def is_passing(error: BaseException) -> bool:
    """Return True if waiting may help: throttling, 5xx, time-outs, connections that are refused, reset or cut off."""
    names = _class_names(error)
    if names & _LASTING:
        return False
    if names & _CLASSES:
        return True
    status, code = _answer(error)
    if status is not None:
        return is_passing_status(status, code)
    return isinstance(error, OSError) and error.errno in _ERRNOS


def is_passing_status(status: int, code: str = "") -> bool:
    """Return True if waiting may help after a response with this HTTP status and error code of S3."""
    return code in _CODES or status in (408, 429) or (status >= 500 and status not in (501, 507))


def is_forbidden(error: BaseException) -> bool:
    """Return True if the storage refuses this user: access denied, or wrong, expired or missing credentials."""
    if isinstance(error, PermissionError) or _class_names(error) & _MISSING_CREDENTIALS:
        return True
    is_read_only = isinstance(error, OSError) and error.errno == errno.EROFS
    return is_read_only or status_of(error) in (401, 403)


def is_full(error: BaseException) -> bool:
    """Return True if there is no space, or no quota, left for a write."""
    return (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)) or status_of(error) == 507


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status if `error` or its cause is a server's response, otherwise None."""
    return _answer(error)[0]


def _class_names(error: BaseException) -> set[str]:
    return {base.__name__ for base in type(error).__mro__}


def _answer(error: BaseException) -> tuple[int | None, str]:
    """Return HTTP status and S3's error code if `error` or its cause is a server's response."""
    for source in (error, error.__cause__):
        response: Any = getattr(source, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return status, str(response.get("Error", {}).get("Code", ""))
    for name in ("status", "status_code", "code"):
        if isinstance(status := getattr(error, name, None), int):
            return status, ""
    return None, ""
