"""The results that models made of rows, from a worker to the files of the memory.

A worker puts them into a hidden column of its block. What stages the block writes them, so a part of a run has one file
for each model, and every process may end at any moment. The publish joins small files and removes what is too old.
"""

import logging
import struct
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import OvernightError
from overnight.tasks.memory.settings import Memory, ModelMemory
from overnight.tasks.reuse.kept_files import INDEX, is_older, keep_files, read_index
from overnight.tasks.rows import rebatch
from overnight.tasks.rows.blocks import REMEMBERED, with_column
from overnight.tasks.storage.location import Location

ROWS = ".rows"
KEY = "__key"
MEMBER_BYTES = 2**19  # in memory
CHECKSUM = struct.Struct("<I")  # CRC32: Arrow takes some damaged bytes for other values
SMALL_BYTES = 16 * 2**20  # of a file that the publish joins with others
GIGABYTE = 1_000_000_000
CELL = pa.list_(
    pa.struct(
        [
            *(("path", pa.string()), ("model", pa.string()), ("name", pa.string()), ("known", pa.int64())),
            *(("keys", pa.binary()), ("rows", pa.large_binary())),
        ]
    )
)

_log = logging.getLogger("overnight.memory")


@dataclass(frozen=True)
class Made:
    """The result of one call: how many of its rows were known, and the others as members, each with its keys."""

    known: int
    members: list[tuple[bytes, bytes]]


def packed(table: pa.Table, known: int) -> Made:
    """Return the rows of a table with the column `KEY` in members of bounded size."""
    members = []
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for piece in rebatch.cut(table, MEMBER_BYTES) if len(table) else ():
        content = pa.BufferOutputStream()
        with pa.ipc.new_stream(content, piece.schema, options=options) as writer:
            writer.write_table(piece.combine_chunks())
        members.append((b"".join(piece[KEY].to_pylist()), _with_checksum(content.getvalue().to_pybytes())))
    return Made(known, members)


def unpacked(member: bytes) -> pa.Table:
    """Return the rows of a member of `packed`. Raise `ValueError` if it is damaged."""
    content = member[CHECKSUM.size :]
    if member != _with_checksum(content):
        raise ValueError("its checksum is that of other bytes")
    return pa.ipc.open_stream(content).read_all()


def _with_checksum(content: bytes) -> bytes:
    return CHECKSUM.pack(zlib.crc32(content)) + content


def with_made(block: pa.Table, memory: ModelMemory, calls: Sequence[Made]) -> pa.Table:
    """Return the block with what these calls of a model made, in its first row."""
    entries: list[dict[str, Any]] = []
    for call in calls:
        entry = {"path": memory.path, "model": memory.key, "name": memory.name}
        entries.append(entry | {"known": call.known})
        for keys, rows in call.members:
            entries.append(entry | {"known": 0, "keys": keys, "rows": rows})
    return with_column(block, f"{REMEMBERED}{memory.name}", pa.array([entries, *[None] * (len(block) - 1)], CELL))


def store(block: pa.Table, name: str) -> dict[str, int]:
    """Write what models made of a block's rows, under `name`. Return the number of known rows for each model."""
    hits: Counter[str] = Counter()
    members: dict[Location, list[tuple[np.ndarray, bytes]]] = defaultdict(list)
    for entry in _entries(block):
        hits[entry["name"]] += entry["known"]
        if entry["rows"]:
            numbers = np.frombuffer(entry["keys"], np.uint64)[::2]
            members[Location(entry["path"]) / entry["model"]].append((numbers, entry["rows"]))
    for folder, pieces in members.items():
        try:
            keep_files(folder, name, ROWS, pieces)
        except (OvernightError, OSError) as error:
            _log.warning("memory: these rows are not remembered, in %s: %s", folder, error)
    return {model: rows for model, rows in hits.items() if rows}


def _entries(block: pa.Table) -> Iterator[dict[str, Any]]:
    for column in block.column_names:
        if column.startswith(REMEMBERED):
            for cell in block[column].drop_null().to_pylist():
                yield from cell


def tidy(memory: Memory, generation: str) -> None:
    """Join the small files of a generation, and remove the oldest files beyond the limits of `memory`."""
    root = Location(memory.path)
    try:
        for model, names in _small_files(root, generation).items():
            if len(names) > 1:
                _join(root / model, names)
        _remove_oldest(root, memory)
    except FileNotFoundError:  # nothing is remembered yet
        return
    except (OvernightError, OSError) as error:
        _log.warning("memory: files in %s are not joined or removed: %s", root, error)


def _small_files(root: Location, generation: str) -> dict[str, list[str]]:
    """Return for each model the names of the generation's small files, without their ending."""
    names: dict[str, list[str]] = defaultdict(list)
    for file in root.files():
        model, _, name = file.path.partition("/")
        if name.startswith(f"{generation}-") and name.endswith(ROWS) and file.size < SMALL_BYTES:
            names[model].append(name.removesuffix(ROWS))
    return names


def _join(folder: Location, names: list[str]) -> None:
    keep_files(folder, f"{names[0]}-{len(names)}", ROWS, _members(folder, names))
    for name in names:
        (folder / f"{name}{INDEX}").remove()
        (folder / f"{name}{ROWS}").remove()


def _members(folder: Location, names: list[str]) -> Iterator[tuple[np.ndarray, bytes]]:
    for name in names:
        try:
            entries = read_index((folder / f"{name}{INDEX}").read_bytes())
            content = (folder / f"{name}{ROWS}").read_bytes()
        except (FileNotFoundError, ValueError):  # the writer was killed before it had written the index
            continue
        for start in np.unique(entries["start"]):
            own = entries[entries["start"] == start]
            yield own["key"], content[start : start + int(own["length"][0])]


def _remove_oldest(root: Location, memory: Memory) -> None:
    files = [file for file in root.files() if file.path.endswith((ROWS, INDEX))]
    files.sort(key=lambda file: file.path.rpartition("/")[2])  # by time; an index comes before its rows
    size, oldest = sum(file.size for file in files), time.time() - memory.days * 86400
    for file in files:
        if size <= memory.gigabytes * GIGABYTE and not is_older(file.path.rpartition("/")[2], oldest):
            return
        (root / file.path).remove()
        size -= file.size
