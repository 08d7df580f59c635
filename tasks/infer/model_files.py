"""The file of a model that is saved as one file: a path on the workers' machines, or a file in a store.

In a fingerprint, a local file counts by its content, and a file in a store by its size and version.
"""

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from overnight.tasks.config.memory_bound import BYTES_A_BYTE, FREE_BYTES
from overnight.tasks.errors import JobError
from overnight.tasks.infer.stored_model import fetched, is_stored, listed_file, local_path
from overnight.tasks.storage.location import Location

ModelFile = Annotated[
    str,
    Field(
        min_length=1,
        description="The model's file: a path where the workers run, or a file in a store, such as "
        "s3://models/scorer.onnx.",
    ),
]


def model_file(written: str, pins: Mapping[str, str] | None = None, beside: str = "") -> Path:
    """Return the local path of the model's file `written`, a path or the URI of a file in a store.

    ${VARIABLES} are filled in. A file in a store is first fetched, once per node.

    Args:
        pins: The versions that the run recorded, as file name -> version; without them, the newest version is fetched.
        beside: The ending of further files of the model, whose names begin with the file's name; empty: no such files.

    Raises:
        JobError: The file does not exist, or changed in the store after the run began.
        AccessDenied: The store or the disk refuses.
        ServiceUnavailable: The store does not answer.
    """
    if not is_stored(written):
        return _refused_bomb(_existing(written), written)
    name = _name(written)
    versions = {file: found for file, found in (pins or {}).items() if file.startswith(name)}
    if name not in versions:
        versions = listed_file(written, beside)
    return _refused_bomb(fetched(written, versions, written, is_file=True) / name, written)


def file_versions(written: str, beside: str = "") -> dict[str, str]:
    """Return the fingerprint of the model's file `written`, and of further files beside it.

    It is name -> sha256 for local files, and name -> size and version for files in a store. Further files have names
    that begin with the file's name and end with `beside`; an empty `beside` adds no file. Raise `JobError` if there is
    no such file.
    """
    if is_stored(written):
        return listed_file(written, beside)
    path = _existing(written)
    further = sorted(path.parent.glob(f"{path.name}*{beside}")) if beside else []
    return file_hashes(path, *further)


def file_hashes(*paths: Path) -> dict[str, str]:
    """Return file name -> sha256, in hexadecimal, of each file."""
    hashes = {}
    for path in paths:
        with path.open("rb") as file:
            hashes[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
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


def _refused_bomb(path: Path, written: str) -> Path:
    if is_bomb(path):
        found = f"{path.stat().st_size:,} bytes that unpack to {declared_bytes(path):,}"
        raise JobError(f"{written}: expected a model whose numbers are stored, found {found}.", "infer")
    return path


def _name(written: str) -> str:
    return Location(written).uri.rstrip("/").rsplit("/", 1)[-1]


def _existing(written: str) -> Path:
    path = local_path(written)
    if not path.is_file():
        found = "a folder" if path.is_dir() else "nothing"
        where = "" if path.is_absolute() else f", looking from {Path.cwd()}"
        raise JobError(f"{written}: expected a model's file, found {found}{where}. Correct the path.", "infer")
    return path
