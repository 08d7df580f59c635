"""A file as a listing tells of it, on any storage: full name, size, version, when it changed."""

import contextlib
from datetime import datetime
from typing import Any, NamedTuple


class ObjectChanged(OSError):
    """The store holds another version of the object than the one to read."""


class Entry(NamedTuple):
    """A file by its full name in its filesystem, size in bytes, version, and `changed_at` as `storage.File` has it.

    no_file: what lies there instead of a file that can be read; empty where one does.
    """

    name: str
    size: int
    version: str
    changed_at: float | None
    no_file: str = ""


def entry_of(name: str, info: dict[str, Any]) -> Entry:
    """Of an entry as fsspec, or S3 itself, gives it."""
    no_file = "" if info.get("size") is not None else "file whose length the server does not tell"
    return Entry(name, int(info.get("size") or 0), version_of(info), changed_at(info), no_file)


def is_text(name: str) -> bool:
    """Whether a name can be written as UTF-8; Python keeps other bytes as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def version_of(info: dict[str, Any]) -> str:
    """What tells a file from another under its name, by its entry: its ETag, its hash, or when it changed."""
    version = info.get("ETag") or info.get("etag") or info.get("md5Hash") or info.get("blob_id") or _modified(info)
    return str(version).strip('"')


def changed_at(info: dict[str, Any]) -> float | None:
    """When a file of a listing came or was changed. Locally the later of both: a copy may keep its original's time."""
    names = ("mtime", "created") if "mtime" in info else ("LastModified", "last_modified", "updated")
    return max((seconds for name in names if (seconds := _seconds(info.get(name))) is not None), default=None)


def _seconds(value: Any) -> float | None:
    """Since 1970, of a time as one driver or another tells it."""
    with contextlib.suppress(ValueError):
        value = datetime.fromisoformat(value) if isinstance(value, str) else value
    if isinstance(value, datetime):
        return value.timestamp()
    return float(value) if isinstance(value, int | float) else None


def _modified(info: dict[str, Any]) -> str:
    value = info.get("mtime", info.get("LastModified", info.get("last_modified", "")))
    return f"{value:.6f}" if isinstance(value, float) else str(value)
