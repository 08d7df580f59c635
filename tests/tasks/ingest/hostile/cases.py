"""What a hostile input is: bytes, the rows that are good all the same, and words of the reason for the rest."""

import gzip
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from overnight.tasks.ingest.source import FileSource


class Case(NamedTuple):
    """`words`: of the reason of each bad row; empty, if the file is good after all."""

    content: bytes
    kept: int
    words: str
    fits_alone: bool = False  # its rows are good where it comes first and decides a type that holds them and others


BOMB_BYTES = 2**28


@dataclass(frozen=True)
class Family:
    """The hostile files of one kind of source, by their names, and a whole file of `rows` rows beside them.

    `broken`: damaged, cut, empty or of another format. `lying`: they declare what is not there. `killing`: they would
    fill the memory of a reader that believes them.
    """

    source: type[FileSource]
    extension: str
    whole: bytes
    rows: int
    broken: Mapping[str, Case]
    lying: Mapping[str, Case]
    killing: Mapping[str, Case] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def cases(found: Mapping[str, tuple[bytes, int, str]]) -> dict[str, Case]:
    return {name: Case(*case) for name, case in found.items()}


def endless(beginning: bytes) -> bytes:
    """`beginning` and 256 MB of zeros, packed by gzip into one."""
    file = io.BytesIO()
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed:
        packed.write(beginning)
        for _ in range(BOMB_BYTES // 2**24):
            packed.write(bytes(2**24))
    return file.getvalue()
