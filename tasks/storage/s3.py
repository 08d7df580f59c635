"""S3 as a filesystem: obstore reads objects (`s3_bucket.py`), and s3fs lists folders, writes, copies and removes.

Both retry requests in the same way (`s3_retries.py`).
"""

import errno
import functools
import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fsspec.asyn import sync
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from s3fs import S3FileSystem

from overnight.tasks.storage.file_info import version_of
from overnight.tasks.storage.s3_bucket import Bucket
from overnight.tasks.storage.s3_retries import ONE_ATTEMPT, log_wait, retrying_session

REQUESTS_AT_ONCE = 128
READ_AHEAD_BYTES = 8 * 2**20
PIECE_BYTES, PIECES_AT_ONCE = 16 * 2**20, 10  # of a file that is copied to the local disk


class PatientS3(S3FileSystem):
    """s3fs, but obstore does all that reads an object."""

    def __init__(self, **options: Any) -> None:
        settings = {**(options.get("config_kwargs") or {}), "retries": ONE_ATTEMPT}
        region = (options.get("client_kwargs") or {}).get("region_name")
        profile, role_arn = options.pop("profile", None), options.pop("role_arn", None)
        session = options.get("session") or retrying_session(profile, role_arn, region)
        super().__init__(**{**options, "config_kwargs": settings, "session": session})
        self._buckets: dict[str, Bucket] = {}

    def bucket(self, name: str) -> Bucket:
        """Return the `Bucket` of this name, always the same one."""
        return self._buckets.setdefault(name, Bucket(self, name))

    def place(self, path: str) -> tuple[Bucket, str]:
        """Return the bucket and the key of a path. The key of one version ends with `?versionId=`, and the version."""
        bucket, key, version_id = self.split_path(path)
        return self.bucket(bucket), f"{key}?versionId={version_id}" if version_id else key

    def client_of(self, bucket: str) -> Any:
        """Return botocore's client of a bucket: of the bucket's region, if the store is AWS's own."""
        self.connect()
        return sync(self.loop, self.get_s3, bucket)

    def source_of_keys(self) -> str:
        """Return botocore's name for the source of the keys, such as `env` or `assume-role`; empty without keys."""
        credentials = sync(self.loop, self.session.get_credentials)
        return str(credentials.method) if credentials else ""

    def ask_for_credentials(self) -> dict[str, str | None]:
        """Return the current credentials under obstore's names, from this filesystem's options or from botocore."""

        async def ask() -> Any:
            credentials = await self.session.get_credentials()
            if credentials is None:
                await self._call_s3("list_buckets")  # raises botocore's error
            return await credentials.get_frozen_credentials()

        keys = (self.key, self.secret, self.token)
        if not self.key:
            keys = sync(self.loop, ask)[:3]
        return dict(zip(("access_key_id", "secret_access_key", "token"), keys, strict=True))

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """Return the description of an object or a folder, as fsspec has it."""
        bucket, key = self.place(path)
        if not bucket.is_served(key):
            return dict(sync(self.loop, self._info, path, **options))
        try:
            with log_wait(f"HeadObject on {path}"):
                return bucket.head(key)
        except FileNotFoundError:
            if not bucket.has_keys(f"{key}/"):
                raise FileNotFoundError(path) from None
            return {"name": self._strip_protocol(path), "size": 0, "type": "directory"}

    def exists(self, path: str, **options: Any) -> bool:
        """Return True for an object, a folder with objects in it, and a bucket."""
        if not self.place(path)[1]:
            return bool(sync(self.loop, self._exists, path, **options))
        try:
            return bool(self.info(path))
        except FileNotFoundError:
            return False

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return the bytes of an object. A negative `start` counts from its end."""
        if end is not None and min(end, start or 0) < 0:  # s3fs looks for the size first
            return bytes(sync(self.loop, self._cat_file, path, start=start, end=end))
        bucket, key = self.place(path)
        with log_wait(f"GetObject on {path}"):
            return bucket.get(key, first=start or 0, stop=end)

    def cat_versions(
        self, paths: Sequence[str], etags: Sequence[str] = (), most: int | None = None
    ) -> list[bytes | Exception]:
        """Return the contents of objects, each in the version of its ETag. An error takes the place of a content."""

        def get(path: str, etag: str) -> bytes | Exception:
            bucket, key = self.place(path)
            try:
                return bucket.get(key, etag, most=most)
            except Exception as error:
                return error

        more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
        with log_wait(f"GetObject on {paths[0]}{more}"):
            return list(_threads(os.getpid()).map(get, paths, etags or [""] * len(paths)))

    def get_file(self, rpath: str, lpath: str, callback: Callback = DEFAULT_CALLBACK, **_: Any) -> None:
        """Copy an object in its current version to a local file, in pieces side by side."""
        source = self._open(rpath)

        def copy(start: int) -> None:
            piece = source.piece(start, start + PIECE_BYTES)
            os.pwrite(file.fileno(), piece, start)
            callback.relative_update(len(piece))

        with open(lpath, "wb") as file, ThreadPoolExecutor(PIECES_AT_ONCE) as pool:
            list(pool.map(copy, range(0, source.size, PIECE_BYTES)))

    def _open(self, path: str, mode: str = "rb", *arguments: Any, **options: Any) -> Any:
        if mode != "rb":
            return super()._open(path, mode, *arguments, **options)
        info = self.info(path)
        if info["type"] == "directory":
            raise IsADirectoryError(path)
        return PinnedObject(self, path, info)

    def open_by_s3fs(self, path: str) -> Any:
        return super()._open(path, "rb", cache_type="none")


class PinnedObject(io.RawIOBase):
    """An object of S3 that is open for reading at the version in `info`: binary and seekable."""

    def __init__(self, filesystem: PatientS3, path: str, info: dict[str, Any]) -> None:
        super().__init__()
        self._bucket, self._key = filesystem.place(path)
        self.info = info
        self.etag, self.size = version_of(info) if info["ETag"] else "", int(info["size"])
        self._position = self._ahead_start = 0
        self._ahead = b""

    def piece(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to before `stop`, or to the end. Raise the errors of `Bucket.get`."""
        with log_wait(f"GetObject on {self._key}"):
            return self._bucket.get(self._key, self.etag, start, min(stop, self.size))

    def read(self, size: int | None = -1) -> bytes:
        """Return `size` bytes, or all remaining bytes if it is None or negative. Raise the errors of `Bucket.get`."""
        count = max(self.size - self._position, 0)
        if size is not None and size >= 0:
            count = min(size, count)
        begin = self._position - self._ahead_start
        if count and not 0 <= begin <= len(self._ahead) - count:
            self._ahead = self.piece(self._position, self._position + max(count, READ_AHEAD_BYTES))
            self._ahead_start, begin = self._position, 0
        data = self._ahead[begin : begin + count]
        self._position += len(data)
        if begin + count >= len(self._ahead):
            self._ahead = b""  # all of it was read
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        if position < 0:  # to `Bucket.get` it would be a distance from the end
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._position = position
        return position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


@functools.cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Return a process's threads for requests. A fork lacks the threads of its parent, so it has its own."""
    return ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="get")
