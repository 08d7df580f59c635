"""Atomic writes of local files: each file is filled under another name and then renamed."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def temporary_file(path: str) -> Iterator[BinaryIO]:
    """Open a new file beside `path` for writing. Remove it afterwards, also after an error."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "wb") as file:
            yield file
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def put_on_disk(file: BinaryIO) -> None:
    """Flush the file and write it to the disk."""
    file.flush()
    os.fsync(file.fileno())
