"""Storage errors as messages: the operation, the place, and what helps."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from overnight.tasks.errors import OvernightError, StorageFailed, StorageRefused
from overnight.tasks.storage.transient_errors import is_forbidden, is_full, is_passing


@contextlib.contextmanager
def worded(verb: str, place: object, local_path: str = "") -> Iterator[None]:
    """Raise `StorageRefused` or `StorageFailed` if a user or a new attempt can solve the error.

    Other errors pass unchanged. `local_path` is the path of the file if it is on a disk.
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
                f"no permission to {verb} {place}: {error}. Nothing was published. Grant it to the user or the "
                "credentials that the job runs with, then run again."
            ) from error
        if is_passing(error):
            raise StorageFailed(
                f"cannot {verb} {place}: {type(error).__name__}: {error}. Nothing was published; "
                "run again to resume where the staged parts end."
            ) from error
        raise


def _free(path: str) -> str:
    """Return a phrase with the free bytes of the disk, measured at the nearest directory that exists."""
    if not path:
        return ""
    place = Path(path).absolute()
    while not place.exists():
        place = place.parent
    return f" ({shutil.disk_usage(place).free:,} bytes free in {place})"
