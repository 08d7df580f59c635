"""The filesystem of a URI, by fsspec, and what differs between filesystems.

fsspec serves all of them (by s3fs for S3). Unlike pyarrow's own filesystems, it lists ETags and fetches hundreds of
small objects concurrently. It also reads public buckets without credentials and can create an object only if it does
not exist. pyarrow reads and writes Parquet through it.
"""

from collections.abc import Iterator
from typing import Any

import fsspec
from fsspec.core import split_protocol, strip_protocol, url_to_fs
from fsspec.implementations.local import LocalFileSystem

from overnight.tasks.config.extras import missing
from overnight.tasks.storage.credentials import GOOGLE, require_credentials
from overnight.tasks.storage.file_info import Entry, entry_of
from overnight.tasks.storage.globs import Pattern
from overnight.tasks.storage.list_local import local_entries
from overnight.tasks.storage.proxies import exempt_this_machine, s3_address

WEB = ("http", "https")
CONNECT_SECONDS = 30.0  # as aiohttp's default


def open_filesystem(
    uri: str, anonymous: bool = False, timeout_seconds: float | None = None
) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the filesystem of a URI without variables, and the URI's path in this filesystem.

    Listings are not cached, because directories change during a run. If `anonymous`, requests have no credentials.
    `timeout_seconds` limits each request to a web server, from its start to the last byte. None means aiohttp's limit.
    Other filesystems have limits of their own.

    Raise `JobError` if the protocol's driver is not installed, `ValueError` if fsspec does not know the protocol,
    `AccessDenied` if there are no credentials.
    """
    protocol = protocol_of(uri)
    options: dict[str, Any] = {"use_listings_cache": False}
    if timeout_seconds and protocol in WEB:
        from aiohttp import ClientTimeout

        timeout = ClientTimeout(timeout_seconds, sock_connect=CONNECT_SECONDS)
        options["client_kwargs"] = {"timeout": timeout, "auto_decompress": False}  # `web_files.py` unpacks to a limit
    if anonymous:
        options |= {"token": "anon"} if protocol in GOOGLE else {"anon": True}
    if protocol in ("s3", "s3a"):
        from overnight.tasks.storage.s3 import PatientS3

        exempt_this_machine(s3_address())
        return PatientS3(**options, **({"version_aware": True} if "?versionId=" in uri else {})), strip_protocol(uri)
    try:
        fsspec.get_filesystem_class(protocol)
        if protocol in GOOGLE:
            from overnight.tasks.storage.google_requests import NotedRequests

            options["session_kwargs"] = {"trace_configs": [NotedRequests()]}
        if not anonymous:
            require_credentials(protocol)
        # Up to the first ::, because fsspec parses a file name that contains :: as a chain of filesystems.
        filesystem, _ = url_to_fs(uri.partition("::")[0], **options)
    except ImportError as error:
        raise missing(getattr(error.__cause__, "name", None) or protocol, f"{protocol}://") from error
    return filesystem, strip_protocol(uri)


def protocol_of(uri: str) -> str:
    """Return the protocol: `s3` for `s3://bucket/name`, `file` for a plain path."""
    return str(split_protocol(uri)[0] or "file")


def store_of(uri: str) -> str:
    """Return a name of the store of a URI: one filesystem reads all URIs of the same store. It is empty without a URI.

    The name is the protocol, for example `s3`. If the filesystem depends on the host, it is protocol and host.
    """
    protocol = protocol_of(uri) if uri else ""
    is_one = protocol in ("", "file", "s3", "s3a", "gs", "gcs", "hf", "http", "https")
    return protocol if is_one else "/".join(uri.split("/", 3)[:3])


def is_local(filesystem: fsspec.AbstractFileSystem) -> bool:
    return isinstance(filesystem, LocalFileSystem)


def is_s3(filesystem: fsspec.AbstractFileSystem) -> bool:
    return hasattr(filesystem, "call_s3")


def is_web(filesystem: fsspec.AbstractFileSystem) -> bool:
    return bool({"http", "https"}.intersection(filesystem.protocol))


def one_request(filesystem: fsspec.AbstractFileSystem) -> dict[str, int]:
    """Return the options with which s3fs reads a file in one request; an empty dictionary for other filesystems.

    By default, s3fs first requests the size, to read a large file in pieces.
    """
    return {"max_concurrency": 1} if is_s3(filesystem) else {}


def entries(filesystem: fsspec.AbstractFileSystem, root: str, pattern: Pattern | None = None) -> Iterator[Entry]:
    """Yield an `Entry` for each file below `root`, in the order of full names, or for `root` itself if it is a file.

    `root` is a path in `filesystem`. With `pattern`, folders in which no path can match may be left out.
    """
    if isinstance(filesystem, LocalFileSystem):
        return local_entries(root or "/", pattern)
    if is_s3(filesystem) and not _is_unordered(root):
        from overnight.tasks.storage.list_s3 import s3_entries  # here, because it imports s3fs

        return s3_entries(filesystem, root, pattern.beginning if pattern else "")
    found = filesystem.find(root, detail=True)
    if not isinstance(found, dict):  # for a file, Azure's driver (adlfs 2026.8) returns only a list with its name
        found = {name: filesystem.info(name) for name in found}
    return (entry_of(name, _with_size(filesystem, name, info)) for name, info in sorted(found.items()))


def _with_size(filesystem: fsspec.AbstractFileSystem, name: str, info: dict[str, Any]) -> dict[str, Any]:
    """Return `info` with the file's size. For a web server this takes a separate request."""
    return info if info.get("size") is not None else info | filesystem.info(name)


def _is_unordered(root: str) -> bool:
    """Return True for a directory bucket (S3 Express One Zone), the one kind that S3 does not list in order."""
    return root.split("/", 1)[0].endswith("--x-s3")
