"""The files of a model: on the workers' machines, or in a store, such as `s3://models/clip/`.

A local file counts in a fingerprint by its content, a file in a store by its size and version, such as S3's ETag.
Workers fetch the versions that were listed when the run began and no others, once per node. A node that has them in its
cache needs no network.
"""

import contextlib
import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from overnight.tasks.config.masking import HIDDEN
from overnight.tasks.config.memory_bound import BYTES_A_BYTE, FREE_BYTES
from overnight.tasks.errors import JobError, OvernightError
from overnight.tasks.storage.argument_files import hash_of
from overnight.tasks.storage.fetch import Versions, fetch, list_file, list_folder, size_of
from overnight.tasks.storage.filesystems import protocol_of
from overnight.tasks.storage.location import Location, expand
from overnight.tasks.storage.node_cache import cached_folder

ModelFile = Annotated[
    str,
    Field(
        min_length=1,
        description="The model's file: a path where the workers run, or a file in a store, such as "
        "s3://models/scorer.onnx.",
    ),
]
NAME_BYTES = 16


def is_stored(written: str) -> bool:
    """Return True if `written` is the URI of a store, and not a hub name, a path or `file://`."""
    return protocol_of(expand(written)) != "file"


def local_path(written: str) -> Path:
    """Return the local path of `written`, a path or a `file://` URI, with ${VARIABLES} filled in."""
    return Path(expand(written).removeprefix("file://")).expanduser()


def model_file(written: str, pins: Mapping[str, str] | None = None, beside: str = "") -> Path:
    """Return the local path of a model's file, fetched from a store with the files that end with `beside`."""
    if is_stored(written):
        name = Location(written).uri.rstrip("/").rsplit("/", 1)[-1]
        versions = {file: version for file, version in (pins or {}).items() if file.startswith(name)}
        if name not in versions:
            versions = listed_file(written, beside)
        path = fetched(written, versions, written, is_file=True) / name
    else:
        path = _existing(written)
    if is_bomb(path):
        sizes = f"{path.stat().st_size:,} bytes that unpack to {declared_bytes(path):,}"
        raise JobError(f"{written}: expected a model whose numbers are stored, found {sizes}.", "infer")
    return path


def file_versions(written: str, beside: str = "") -> dict[str, str]:
    """Return the fingerprint of a model's file, and of the files beside it, as `model_file` finds them."""
    if is_stored(written):
        return listed_file(written, beside)
    path = _existing(written)
    paths = [path]
    if beside:
        paths += sorted(path.parent.glob(f"{path.name}*{beside}"))
    hashes = {}
    for path in paths:
        hashes[path.name] = hash_of(path)
    return hashes


def declared_bytes(path: Path) -> int:
    """Return the bytes to which a file unpacks: those of the members if it is a zip archive, as most formats are."""
    if not zipfile.is_zipfile(path):
        return path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError):
        return 0  # its reader reports it


def is_bomb(path: Path) -> bool:
    """Return True if a file unpacks to much more than its size; the numbers of a model hardly get smaller."""
    return declared_bytes(path) > FREE_BYTES + BYTES_A_BYTE * path.stat().st_size


def listed_folder(written: str, setting: str, expected: str) -> dict[str, str]:
    """Return file name -> size and version of each file in a folder in a store; `expected` describes it."""
    try:
        with _explained(written, setting):
            return list_folder(Location(written))
    except (FileNotFoundError, NotADirectoryError) as error:
        content = "a single file" if isinstance(error, NotADirectoryError) else "nothing there"
        raise JobError(f"{setting}: expected {expected}, found {content}. Correct the path.", "infer") from error


def listed_file(written: str, beside: str) -> dict[str, str]:
    """Return file name -> size and version of a file in a store, and of the files beside it."""
    try:
        with _explained(written, written):
            return list_file(Location(written), beside)
    except (FileNotFoundError, IsADirectoryError) as error:
        content = "a folder" if isinstance(error, IsADirectoryError) else "nothing"
        raise JobError(
            f"{written}: expected a model's file, found {content} there. Correct the path.", "infer"
        ) from error


def fetched(written: str, versions: Versions, setting: str, is_file: bool = False) -> Path:
    """Return the folder in this node's cache with these versions of a model's files, and fetch them if need be."""
    location = Location(written)
    content = json.dumps([location.uri, sorted(versions.items())])
    name = hashlib.sha256(content.encode()).digest()[:NAME_BYTES].hex()
    return cached_folder(name, size_of(versions), setting, lambda folder: fetch(location, versions, folder, is_file))


@contextlib.contextmanager
def _explained(written: str, setting: str) -> Iterator[None]:
    try:
        yield
    except (OvernightError, FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise
    except Exception as error:
        reason = str(error)
        bucket = expand(written).split("://", 1)[1].split("/", 1)[0]
        if "@" in bucket:  # a key may be before it
            reason = reason.replace(bucket, HIDDEN)
        raise JobError(f"{setting}: cannot be listed: {type(error).__name__}: {reason}", "infer") from None


def _existing(written: str) -> Path:
    path = local_path(written)
    if not path.is_file():
        content = "a folder" if path.is_dir() else "nothing"
        if not path.is_absolute():
            content += f", looking from {Path.cwd()}"
        raise JobError(f"{written}: expected a model's file, found {content}. Correct the path.", "infer")
    return path
