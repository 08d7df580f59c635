"""Whether an error of reading is about one file, which costs its rows, or about the storage, which may recover."""

import contextlib
import errno
from collections.abc import Iterator

import pyarrow as pa

from overnight.tasks.config.memory_bound import shortage
from overnight.tasks.errors import OvernightError, RowError
from overnight.tasks.storage.transient_errors import is_forbidden, is_full, is_passing

# Errors about a path, and not about the disk.
OF_ONE_FILE = {
    *(errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.ENODEV, errno.EOVERFLOW, errno.EFBIG),
    errno.EILSEQ,
}
# Libraries that access storage. The errors of `ssl` have numbers that are not an errno.
CLIENTS = (
    *("botocore", "aiobotocore", "aiohttp", "azure", "google.auth", "google.api_core", "gcsfs", "httpx", "httpcore"),
    *("huggingface_hub", "requests", "urllib3", "obstore", "ssl"),
)


def is_corrupt_file(error: Exception) -> bool:
    """Return True if `error` is about one file, and not about the storage or Overnight itself."""
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError):
        return True
    if isinstance(error, OvernightError | ImportError) or is_passing(error) or is_forbidden(error) or is_full(error):
        return False
    if type(error).__module__.startswith(CLIENTS):
        return type(error).__name__ == "ParamValidationError"  # for an invalid address
    return not isinstance(error, OSError) or error.errno is None or error.errno in OF_ONE_FILE


@contextlib.contextmanager
def passing_over_damage() -> Iterator[None]:
    """End the body at an error about its file, which is reported when its rows are read."""
    try:
        yield
    except Exception as error:
        if not is_corrupt_file(error):
            raise


@contextlib.contextmanager
def translate_corruption(content: str) -> Iterator[None]:
    """Raise `RowError` if a library finds damage in a file; `content` is what an intact file has."""
    try:
        yield
    except MemoryError as error:  # or a damaged length requests too much
        raise RowError(f"expected {content}: {shortage(error)}") from error
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) or not is_corrupt_file(error):
            raise
        if isinstance(error, pa.ArrowNotImplementedError):  # the file may be valid
            raise RowError(f"pyarrow {pa.__version__} cannot read {content}: {str(error).strip()}") from error
        raise RowError(f"expected {content}: {str(error).strip() or type(error).__name__}") from error


@contextlib.contextmanager
def translate_panics() -> Iterator[None]:
    """Raise `RuntimeError` for a panic of a library in Rust, which is not an `Exception` and would end a process."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RuntimeError(f"the library broke off: {error}") from error


def too_large(what: str, size: int | None, most: int, setting: str) -> RowError:
    """Return the error of a file or row of more bytes than `setting` allows. `size` is None if it is not known."""
    amount = "more" if size is None else f"{size:,}"
    bound = f"expected {what} of at most {setting} = {most:,} bytes, found {amount}"
    return RowError(f"{bound}. Raise source.{setting} if a worker's memory holds several of that size")
