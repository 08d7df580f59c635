"""The files and folders that the `kwargs` of the user's code name, such as weights: they decide results as well.

A text at any depth of `kwargs` names a local file or folder if one exists there, seen from the working directory, or a
file or folder in a store. Each such text has one version: a digest of the content of its local files, or of the sizes
and versions of its files in the store. Of a local folder that is too large to read, it has sizes and times.

Only files with an ending of `READ_ENDINGS` count, and folders with an ending of `WEIGHTS` in them: code also gets the
names of files that it writes, such as a log, and of folders that it works in. Those must not turn its own rows stale.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from overnight.tasks.storage.fetch import list_file, list_folder
from overnight.tasks.storage.location import Location

STORES = ("s3://", "s3a://", "gs://", "gcs://", "abfs://", "abfss://", "az://", "hf://")
MOST_FILES, MOST_BYTES = 10_000, 64 * 2**30  # of a folder whose content counts
WEIGHTS = (
    *(".pt", ".pth", ".pt2", ".ckpt", ".bin", ".safetensors", ".onnx", ".onnx_data", ".keras", ".h5", ".hdf5"),
    *(".tflite", ".pb", ".gguf", ".joblib", ".pkl", ".pickle", ".npy", ".npz", ".model", ".index", ".ubj", ".cbm"),
)
READ_ENDINGS = (*WEIGHTS, ".json", ".yaml", ".yml", ".toml", ".txt", ".csv", ".tsv", ".jinja")
STATE = "_overnight"  # in a folder to which a job publishes


def argument_files(kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Return argument -> version, as in `kwargs.parts.0`, for each value that names an existing file or folder."""
    versions = {}
    for argument, text in _texts("kwargs", kwargs):
        version = _stored_version(text) if text.startswith(STORES) else _local_version(text)
        if version:
            versions[argument] = version
    return versions


def _texts(argument: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts at any depth of a value, each with the name of its argument."""
    if isinstance(value, str):
        yield argument, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(f"{argument}.{name}", inner)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _texts(f"{argument}.{place}", inner)


def _stored_version(uri: str) -> str | None:
    place = Location(uri.rstrip("/"))
    if uri.lower().endswith(READ_ENDINGS):
        with suppress(FileNotFoundError, IsADirectoryError):
            return _digest(list_file(place))
    try:
        files = {name: version for name, version in list_folder(place).items() if name.lower().endswith(READ_ENDINGS)}
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _digest(files) if _has_weights(files) else None


def _local_version(text: str) -> str | None:
    path = Path(os.path.expandvars(os.path.expanduser(text.removeprefix("file://"))))
    if not text or not os.path.exists(path):  # False for a text that cannot be a path
        return None
    if path.is_file():
        return _content(path) if path.name.lower().endswith(READ_ENDINGS) else None
    is_around = Path.cwd().is_relative_to(path.resolve())
    if not path.is_dir() or is_around:
        return None
    published = {state.parent for state in path.rglob(STATE)}
    inner = (file for file in path.rglob("*") if file.is_file() and published.isdisjoint(file.parents))
    files = sorted(file for file in inner if not _is_passed_over(file.relative_to(path)))
    if not _has_weights(file.name for file in files):
        return None
    states = {file: file.stat() for file in files}
    if len(files) > MOST_FILES or sum(state.st_size for state in states.values()) > MOST_BYTES:
        return _digest({str(file): f"{state.st_size} {state.st_mtime_ns}" for file, state in states.items()})
    return _digest({file.relative_to(path).as_posix(): _content(file) for file in files})


def _has_weights(names: Iterable[str]) -> bool:
    return any(name.lower().endswith(WEIGHTS) for name in names)


def _is_passed_over(path: Path) -> bool:
    is_hidden = any(part.startswith(".") or part == "__pycache__" for part in path.parts)
    return is_hidden or not path.name.lower().endswith(READ_ENDINGS)


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(versions: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(versions.items())).encode()).hexdigest()
