"""S3 objects that are read in one version, whole or piece by piece."""

import functools
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from overnight.tasks.storage.file_info import version_of
from overnight.tasks.storage.s3_bucket import Bucket
from overnight.tasks.storage.s3_store import log_wait

REQUESTS_AT_ONCE = 128
READ_AHEAD_BYTES = 8 * 2**20


class PinnedObject(io.RawIOBase):
    """An object of S3 that is open for reading at one version: binary and seekable."""

    def __init__(self, bucket: Bucket, key: str, info: dict[str, Any]) -> None:
        super().__init__()
        self._bucket, self._key, self.etag, self._size = bucket, key, version_of(info), int(info["size"])
        self._position = self._ahead_start = 0
        self._ahead = b""

    def read(self, size: int | None = -1) -> bytes:
        """Return `size` bytes, or all remaining bytes if it is None or negative. Raise the errors of `Bucket.get`."""
        count = max(self._size - self._position, 0)
        if size is not None and size >= 0:
            count = min(size, count)
        begin = self._position - self._ahead_start
        if count and not 0 <= begin <= len(self._ahead) - count:
            stop = min(self._position + max(count, READ_AHEAD_BYTES), self._size)
            with log_wait(f"GetObject on {self._key}"):
                self._ahead = self._bucket.get(self._key, self.etag, self._position, stop)
            self._ahead_start, begin = self._position, 0
        data = self._ahead[begin : begin + count]
        self._position += len(data)
        if begin + count >= len(self._ahead):
            self._ahead = b""  # all of it was read
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def open_pinned(filesystem: Any, path: str, info: dict[str, Any]) -> PinnedObject:
    """Open an object for reading at the version in `info`, which is the object's description by s3fs."""
    bucket, key, _ = filesystem.split_path(path)
    return PinnedObject(filesystem.bucket(bucket), key, info)


def read_versions(
    filesystem: Any, paths: Sequence[str], etags: Sequence[str], most: int | None = None
) -> list[bytes | Exception]:
    """Return the contents of objects, each in the version of its ETag. An error takes the place of a content."""

    def get(path: str, etag: str) -> bytes | Exception:
        bucket, key, _ = filesystem.split_path(path)
        try:
            return bytes(filesystem.bucket(bucket).get(key, etag, most=most))
        except Exception as error:
            return error

    more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    with log_wait(f"GetObject on {paths[0]}{more}"):
        return list(_threads().map(get, paths, etags))


@functools.cache
def _threads() -> ThreadPoolExecutor:
    """Return the process's threads for requests. They start at the first request."""
    return ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="get")
