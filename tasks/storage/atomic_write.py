"""A local file that is written whole or not at all: filled under another name, and then renamed."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def temporary_file(path: str) -> Iterator[BinaryIO]:
    """A new file beside `path`, open for writing; gone afterwards, whatever happens."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "wb") as file:
            yield file
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def put_on_disk(file: BinaryIO) -> None:
    """Puts what was written on the disk."""
    file.flush()
    os.fsync(file.fileno())
