"""The facts about a file that a listing returns, on any storage: full name, size, version, time of change."""

import contextlib
import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

_ARCHIVED = re.compile(r"InvalidObjectState|BlobArchived|archived blob")  # the codes of S3 and Azure, Azure's message
_STORAGE_CLASS = re.compile(r"<StorageClass>(\w+)</StorageClass>")


class TooLarge(Exception):
    """A file has more bytes than may be read. `size` is their number; None if it is unknown."""

    def __init__(self, size: int | None) -> None:
        super().__init__(size)
        self.size = size


class ObjectChanged(OSError):
    """An object in a store no longer has the version that was to be read."""


class NoInputs(FileNotFoundError):
    """A pattern, or one of several paths, finds no file. The message is written for the user."""


class Entry(NamedTuple):
    """A file of a listing. `name` is its full name in the filesystem, and `size` is in bytes.

    `version` is its ETag, hash, or time of change as text; empty if unknown. `changed_at` is in seconds since 1970, or
    None. `special_kind` names what exists instead of a readable file, such as `FIFO`; it is empty for a file.
    """

    name: str
    size: int
    version: str
    changed_at: float | None
    special_kind: str = ""


def archived(error: BaseException) -> str:
    """Return a sentence if the store refuses an object because it is archived, otherwise an empty string."""
    text = f"{error}\n{getattr(error, 'error_code', '')}\n{error.__cause__}"
    if not _ARCHIVED.search(text):
        return ""
    name = ""
    response = getattr(error.__cause__ or error, "response", None)
    if match := _STORAGE_CLASS.search(text):
        name = match[1]
    elif isinstance(response, dict):
        name = response.get("Error", {}).get("StorageClass")
    storage_class = f" (storage class {name})" if name else ""
    return f"expected an object that can be read, found an archived one{storage_class}. Restore it, then run again"


def entry_of(name: str, info: dict[str, Any]) -> Entry:
    """Return the `Entry` of the file `name`. `info` is the file's description by fsspec or by a listing of S3."""
    special_kind = "" if info.get("size") is not None else "file whose length the server does not report"
    return Entry(name, int(info.get("size") or 0), version_of(info), _changed_at(info), special_kind)


def is_text(name: str) -> bool:
    """Return True if the name can be written as UTF-8. Otherwise Python keeps its bytes as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def version_of(info: dict[str, Any]) -> str:
    """Return the version of a file: its ETag, its hash, or its time of change; empty if `info` has none of them."""
    version = info.get("ETag") or info.get("etag") or info.get("md5Hash") or info.get("blob_id")
    if not version:
        version = info.get("mtime", info.get("LastModified", info.get("last_modified", "")))
    return f"{version:.6f}" if isinstance(version, float) else str(version).strip('"')


def shown_version(version: str) -> str:
    """Return a version as a phrase for messages: a time of change in UTC, or an ETag or hash unchanged."""
    if "." in version:
        with contextlib.suppress(ValueError, OverflowError):
            changed_at = datetime.fromtimestamp(float(version), UTC)
            return f"last changed at {changed_at:%Y-%m-%d %H:%M:%S.%f} UTC"
    return f"version {version}"


def _changed_at(info: dict[str, Any]) -> float | None:
    """Return when a file changed, in seconds since 1970, or arrived: a copy may keep the time of its original."""
    if "mtime" in info:
        times = [info["mtime"], info.get("created")]
    else:
        times = [info.get("LastModified"), info.get("last_modified"), info.get("updated")]
    return max((seconds for time in times if (seconds := _seconds(time)) is not None), default=None)


def _seconds(value: Any) -> float | None:
    """Return seconds since 1970 for any of the drivers' time formats, or None."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return value.timestamp()
    return float(value) if isinstance(value, int | float) else None


def shown_bytes(size: float) -> str:
    """Return a size in bytes as a text for messages, such as `350.0 MB`."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
