"""The files and folders that the `kwargs` of the user's code name, such as weights: they decide results as well.

A text at any depth names a local file or folder if one exists there, or a file or folder in a store. Its version is a
digest of the content of its local files, or of sizes and versions in a store. Only files with an ending of
`READ_ENDINGS` count, and folders with an ending of `WEIGHTS` in them: files that code writes must not turn rows stale,
and so must not what runs publish, or keep for later runs.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
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
INDEX, KEPT = ".npy", (".rows", ".jsonl.gz")  # an index, and what it is beside: remembered rows, or answers


def argument_files(kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Return argument -> version, as in `kwargs.parts.0`, for each value that names an existing file or folder."""
    versions = {}
    for argument, text in _texts("kwargs", kwargs):
        find_version = _stored_version if text.startswith(STORES) else _local_version
        if version := find_version(text):
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
        for number, inner in enumerate(value):
            yield from _texts(f"{argument}.{number}", inner)


def _stored_version(uri: str) -> str | None:
    location = Location(uri.rstrip("/"))
    if uri.lower().endswith(READ_ENDINGS):
        with suppress(FileNotFoundError, IsADirectoryError):
            return _digest(list_file(location))
    try:
        versions = list_folder(location)
    except (FileNotFoundError, NotADirectoryError):
        return None
    folders = _kept_folders(versions)
    files = {}
    for name, version in versions.items():
        if name.lower().endswith(READ_ENDINGS) and str(PurePath(name).parent) not in folders:
            files[name] = version
    return _digest(files) if _has_weights(files) else None


def _local_version(text: str) -> str | None:
    path = Path(os.path.expandvars(os.path.expanduser(text.removeprefix("file://"))))
    if not text or not os.path.exists(path):  # False for a text that cannot be a path
        return None
    if path.is_file():
        return hash_of(path) if path.name.lower().endswith(READ_ENDINGS) else None
    if not path.is_dir() or Path.cwd().is_relative_to(path.resolve()):
        return None
    states = {}
    paths = list(path.rglob("*"))
    folders = {file.parent for file in paths if file.name == STATE}
    folders.update(map(Path, _kept_folders(map(str, paths))))
    for file in paths:
        parts = file.relative_to(path).parts
        is_hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
        is_read = file.name.lower().endswith(READ_ENDINGS) and folders.isdisjoint(file.parents)
        if is_read and not is_hidden and file.is_file():
            states[file] = file.stat()
    if not _has_weights(file.name for file in states):
        return None
    if len(states) > MOST_FILES or sum(state.st_size for state in states.values()) > MOST_BYTES:
        return _digest({str(file): f"{state.st_size} {state.st_mtime_ns}" for file, state in states.items()})
    return _digest({file.relative_to(path).as_posix(): hash_of(file) for file in states})


def _kept_folders(names: Iterable[str]) -> set[str]:
    """Return the folders of rows or answers that runs keep: an index is beside them."""
    files, folders = set(names), set()
    for name in files:
        stem = name.removesuffix(INDEX)
        if stem != name and any(f"{stem}{ending}" in files for ending in KEPT):
            folders.add(str(PurePath(name).parent))
    return folders


def _has_weights(names: Iterable[str]) -> bool:
    return any(name.lower().endswith(WEIGHTS) for name in names)


def hash_of(path: Path) -> str:
    """Return the sha256 of a file's content, in hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(versions: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(versions.items())).encode()).hexdigest()
