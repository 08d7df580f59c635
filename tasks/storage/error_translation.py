"""Errors of storage in words: what could not be done where, and what helps."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from overnight.tasks.errors import OvernightError, StorageFailed, StorageRefused
from overnight.tasks.storage.transient_errors import is_forbidden, is_full, is_passing


@contextlib.contextmanager
def worded(verb: str, place: object, local_path: str = "") -> Iterator[None]:
    """Raises `StorageRefused` or `StorageFailed` for errors about which a person or a new attempt can do something.

    Others pass as they are. `local_path`: where the file lies, if it lies on a disk.
    """
    try:
        yield
    except OvernightError:
        raise
    except Exception as error:
        if is_full(error):
            raise StorageRefused(
                f"cannot {verb} {place}: no space left{_free(local_path)}. Nothing was published. Make room there, "
                "then run again: it resumes where the staged parts end."
            ) from error
        if is_forbidden(error):
            raise StorageRefused(
                f"no permission to {verb} {place}: {error}. Nothing was published. Allow it to the user or the "
                "credentials that the job runs with, then run again."
            ) from error
        if is_passing(error):
            raise StorageFailed(
                f"cannot {verb} {place}: {type(error).__name__}: {error}. Nothing was published; "
                "run again to resume where the staged parts end."
            ) from error
        raise


def _free(path: str) -> str:
    """What the disk has left, told by the nearest directory that exists."""
    if not path:
        return ""
    place = Path(path).absolute()
    while not place.exists():
        place = place.parent
    return f" ({shutil.disk_usage(place).free:,} bytes free in {place})"
