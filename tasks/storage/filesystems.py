"""The filesystem of a URI, by fsspec, and what differs between them.

One library serves them all (s3fs for S3): unlike pyarrow's own filesystems it lists ETags, fetches hundreds of small
objects at once, reads public buckets without credentials and can create an object only if it is not there. pyarrow
reads and writes Parquet through it.
"""

from collections.abc import Iterator
from typing import Any

import fsspec
from fsspec.core import split_protocol, strip_protocol, url_to_fs
from fsspec.implementations.local import LocalFileSystem

from overnight.tasks.config.extras import missing
from overnight.tasks.storage.credentials import GOOGLE, require_credentials
from overnight.tasks.storage.file_info import Entry, entry_of
from overnight.tasks.storage.list_local import local_entries
from overnight.tasks.storage.list_s3 import s3_entries


def open_filesystem(uri: str, anonymous: bool = False) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the filesystem of an expanded URI, and the path in it.

    Listings are not cached, because directories change meanwhile. Raise `JobError` where the protocol's driver is not
    installed, `ValueError` for a protocol that fsspec does not know, `StorageRefused` where there are no credentials.
    """
    protocol = protocol_of(uri)
    options: dict[str, Any] = {"use_listings_cache": False}
    if anonymous:
        options |= {"token": "anon"} if protocol in GOOGLE else {"anon": True}
    if protocol in ("s3", "s3a"):
        from overnight.tasks.storage.s3 import PatientS3

        return PatientS3(**options, **({"version_aware": True} if "?versionId=" in uri else {})), strip_protocol(uri)
    try:
        fsspec.get_filesystem_class(protocol)
        if not anonymous:
            require_credentials(protocol)
        # Up to the first ::, because fsspec takes a file name with :: in it for a chain of filesystems.
        filesystem, _ = url_to_fs(uri.partition("::")[0], **options)
    except ImportError as error:
        raise missing(getattr(error.__cause__, "name", None) or protocol, f"{protocol}://") from error
    return filesystem, strip_protocol(uri)


def protocol_of(uri: str) -> str:
    """`s3` of `s3://bucket/name`; `file` of a plain path."""
    return str(split_protocol(uri)[0] or "file")


def is_local(filesystem: fsspec.AbstractFileSystem) -> bool:
    return isinstance(filesystem, LocalFileSystem)


def is_s3(filesystem: fsspec.AbstractFileSystem) -> bool:
    return hasattr(filesystem, "call_s3")


def one_request(filesystem: fsspec.AbstractFileSystem) -> dict[str, int]:
    """Return what has s3fs read a file with one request: it asks for the size first, to read a large one in pieces."""
    return {"max_concurrency": 1} if is_s3(filesystem) else {}


def entries(filesystem: fsspec.AbstractFileSystem, root: str) -> Iterator[Entry]:
    """What lies below `root` in the order of full names, or `root` itself where that is a file."""
    if isinstance(filesystem, LocalFileSystem):
        return local_entries(root)
    if is_s3(filesystem) and not _is_unordered(root):
        return s3_entries(filesystem, root)
    found = filesystem.find(root, detail=True)
    if not isinstance(found, dict):  # of a file, Azure's driver (adlfs 2026.8) gives but a list of its name
        found = {name: filesystem.info(name) for name in found}
    return (entry_of(name, _with_size(filesystem, name, info)) for name, info in sorted(found.items()))


def _with_size(filesystem: fsspec.AbstractFileSystem, name: str, info: dict[str, Any]) -> dict[str, Any]:
    """An entry with its size, for which a web server has to be asked apart."""
    return info if info.get("size") is not None else info | filesystem.info(name)


def _is_unordered(root: str) -> bool:
    """Whether it is a directory bucket (S3 Express One Zone), the one kind that S3 does not list in order."""
    return root.split("/", 1)[0].endswith("--x-s3")
