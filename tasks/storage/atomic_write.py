"""Atomic writes of local files: each file is filled under another name and then renamed."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def temporary_file(path: str) -> Iterator[BinaryIO]:
    """Yield a new file beside `path`. Remove it at the end, also after an error, unless the body renames it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "wb") as file:
            yield file
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def put_on_disk(file: BinaryIO) -> None:
    """Flush Python's buffer of the file, and wait until its bytes are on the disk."""
    file.flush()
    os.fsync(file.fileno())
