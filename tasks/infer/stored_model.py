"""A model in a store, such as `s3://models/clip/`. It is listed when a run begins, and each node fetches it once.

The listing is the model's fingerprint: file name -> size and version, such as S3's ETag. Workers fetch these versions
and no others, so all nodes of a run load the same model. A node that has them in its cache needs no network.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from overnight.tasks.config.masking import HIDDEN
from overnight.tasks.errors import JobError, OvernightError
from overnight.tasks.storage.fetch import Versions, fetch, list_file, list_folder, size_of
from overnight.tasks.storage.filesystems import protocol_of
from overnight.tasks.storage.location import Location, expand
from overnight.tasks.storage.node_cache import cached_folder

NAME_BYTES = 16


def is_stored(written: str) -> bool:
    """Return True if `written` is the URI of a store, and not a hub name, a path or `file://`."""
    return protocol_of(expand(written)) != "file"


def local_path(written: str) -> Path:
    """Return the local path of `written`, a path or a `file://` URI, with ${VARIABLES} filled in."""
    return Path(expand(written).removeprefix("file://")).expanduser()


def listed_folder(written: str, setting: str, expected: str) -> dict[str, str]:
    """Return file name -> size and version of each file in the folder `written`, the URI of a model in a store.

    Messages begin with `setting`, and `expected` describes the right folder in them.

    Raise `JobError` if there is no such folder, or it cannot be listed. Raise `AccessDenied` if the store refuses, and
    `ServiceUnavailable` if it does not answer.
    """
    try:
        with _explained(written, setting):
            return list_folder(Location(written))
    except (FileNotFoundError, NotADirectoryError) as error:
        found = "a single file" if isinstance(error, NotADirectoryError) else "nothing there"
        raise JobError(f"{setting}: expected {expected}, found {found}. Correct the path.", "infer") from error


def listed_file(written: str, beside: str) -> dict[str, str]:
    """Return file name -> size and version of the file `written`, the URI of a model in a store, and of further files.

    The names of further files begin with the file's name and end with `beside`; an empty `beside` adds no file. Raise
    `JobError` if there is no such file, or it cannot be listed. Raise `AccessDenied` if the store refuses, and
    `ServiceUnavailable` if it does not answer.
    """
    try:
        with _explained(written, written):
            return list_file(Location(written), beside)
    except (FileNotFoundError, IsADirectoryError) as error:
        found = "a folder" if isinstance(error, IsADirectoryError) else "nothing"
        raise JobError(
            f"{written}: expected a model's file, found {found} there. Correct the path.", "infer"
        ) from error


def fetched(written: str, versions: Versions, setting: str, is_file: bool = False) -> Path:
    """Return the folder in this node's cache that has these versions of a model's files. Fetch them if it is not there.

    `written` is the model's URI. `versions`, file name -> size and version, is from `listed_folder`, or from
    `listed_file` if `is_file`. Messages begin with `setting`. Raise `JobError` if a file changed after the listing, or
    the cache is too small. Raise `AccessDenied` if the store or the disk refuses, and `ServiceUnavailable` if the store
    does not answer.
    """
    place = Location(written)
    content = json.dumps([place.uri, sorted(versions.items())])
    name = hashlib.sha256(content.encode()).digest()[:NAME_BYTES].hex()
    return cached_folder(name, size_of(versions), setting, lambda folder: fetch(place, versions, folder, is_file))


@contextlib.contextmanager
def _explained(written: str, setting: str) -> Iterator[None]:
    try:
        yield
    except (OvernightError, FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise
    except Exception as error:
        address = expand(written).split("://", 1)[1].split("/", 1)[0]  # a bucket, which may have a key before an @
        why = str(error).replace(address, HIDDEN) if "@" in address else str(error)
        raise JobError(f"{setting}: cannot be listed: {type(error).__name__}: {why}", "infer") from None
