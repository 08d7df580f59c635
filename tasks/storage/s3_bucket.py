"""A bucket of S3: what its keys and objects are. obstore lists the keys and reads the objects.

s3fs lists folders. It also serves keys for which obstore has no path (`a//b`, `a/../b`, a tab), forks of a process that
used obstore, servers whose certificate obstore refuses, and buckets for which obstore lacks settings: an ARN, S3
Express, the requester pays.
"""

import errno
import functools
import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import obstore
from obstore.exceptions import InvalidPathError
from obstore.store import S3Store
from s3fs.utils import FileExpired

from overnight.tasks.storage.file_info import Entry, ObjectChanged, TooLarge, entry_of, version_of
from overnight.tasks.storage.s3_retries import log_wait
from overnight.tasks.storage.s3_store import has_path, is_trusted, is_usable, open_store, retried

BUCKET = re.compile(r"[\w.-]{1,255}", re.ASCII)  # not an ARN, and not `key:secret@bucket`, which s3fs refuses
KEYS_A_PAGE = 1000  # S3's maximum


class Bucket:
    """The bucket `name` of S3. Requests use obstore, or `filesystem`, a `PatientS3`, for what obstore cannot do."""

    def __init__(self, filesystem: Any, name: str) -> None:
        self._filesystem, self._name = filesystem, name
        options = filesystem.req_kw or filesystem.s3_additional_kwargs  # only s3fs knows the headers to send
        self._is_ordinary = bool(BUCKET.fullmatch(name)) and not (options or name.endswith("--x-s3"))

    def get(self, key: str, etag: str = "", first: int = 0, stop: int | None = None, most: int | None = None) -> bytes:
        """Return the bytes of an object from byte `first`, which may count from the end, to before byte `stop`.

        Raise `ObjectChanged` for another version than `etag`, `TooLarge` above `most` bytes, or Python's errors.
        """
        if not self.is_served(key):
            return self._get_by_s3fs(key, etag, first, stop, most)
        options: Any = {}
        if etag:
            options["if_match"] = f'"{etag}"'
        if first < 0:
            options["range"] = {"suffix": -first}
        elif stop is not None:
            options["range"] = (first, stop)
        elif first:
            options["range"] = {"offset": first}

        def content() -> bytes:
            answer = obstore.get(self._store, key, options=options)
            # a server without support for If-Match may return another version
            _require(key, etag, (answer.meta["e_tag"] or "").strip('"'), most, answer.meta["size"])
            return bytes(answer.bytes())

        try:
            return retried("GetObject", self._name, key, content)
        except OSError as error:
            if first < 0 and error.errno == errno.EIO and not self.head(key)["size"]:
                return b""  # obstore expects that an end has bytes
            raise

    def head(self, key: str) -> dict[str, Any]:
        """Return the description of an object that `is_served`, under fsspec's names, or raise Python's errors."""
        meta = retried("HeadObject", self._name, key, lambda: obstore.head(self._store, key))
        version = {"ETag": meta["e_tag"] or "", "LastModified": meta["last_modified"]}
        return {"name": f"{self._name}/{key}", "type": "file", "size": meta["size"], **version}

    def signed_url(self, key: str, lifetime: timedelta) -> str:
        """Return a signed URL, by which a server without keys reads the object for `lifetime`."""
        if not self.is_served(key):
            seconds = int(lifetime.total_seconds())
            return str(self._filesystem.sign(f"{self._name}/{key}", expiration=seconds))

        def sign() -> str:
            return str(obstore.sign(self._store, "GET", key, lifetime))

        return retried("GetObject", self._name, key, sign)

    def is_served(self, key: str) -> bool:
        """Return True if obstore can do requests for this key."""
        is_version = self._filesystem.version_aware and "?versionId=" in key
        return self._is_ordinary and has_path(key) and not is_version and is_usable() and self._is_trusted

    def has_keys(self, prefix: str) -> bool:
        return bool(next(self.answers(prefix, MaxKeys=1)).get("Contents"))

    def pages(self, prefix: str, after: str = "") -> Iterator[list[Entry]]:
        """Yield lists of the entries below `prefix` whose keys sort after `after`, in the order of keys."""
        can_list = self._can_list(prefix)
        while True:
            try:
                for page in self._pages(prefix, after) if can_list else [[]]:
                    if self._may_lack_slashes(page, after):
                        break
                    yield page
                    after = self.key(page[-1])
                else:
                    return
            except (InvalidPathError, ValueError):  # a key without a path, among the next ones or before them
                pass
            for answer in self.answers(prefix, after):  # a store may return no key and still have more
                if page := self.entries(answer):
                    break
            if page:
                yield page
                after = self.key(page[-1])
            if not answer.get("IsTruncated"):
                return

    def answers(self, prefix: str, after: str = "", **arguments: Any) -> Iterator[dict[str, Any]]:
        """Yield the responses that s3fs gets to `ListObjectsV2` for the keys after `after`, one per page."""
        arguments = {"Bucket": self._name, "Prefix": prefix, "MaxKeys": KEYS_A_PAGE, **arguments}
        start = {"StartAfter": after} if after else {}
        while True:
            answer = self._filesystem.call_s3("list_objects_v2", **self._filesystem.req_kw, **arguments, **start)
            yield answer
            if not answer.get("IsTruncated"):
                return
            start = {"ContinuationToken": answer["NextContinuationToken"]}

    def entries(self, answer: dict[str, Any]) -> list[Entry]:
        """Return the objects that a response of `answers` lists."""
        contents = answer.get("Contents", [])
        return [entry_of(f"{self._name}/{info['Key']}", {"size": info["Size"], **info}) for info in contents]

    def key(self, entry: Entry) -> str:
        """Return the key of an entry: its name without the bucket's name."""
        return entry.name[len(self._name) + 1 :]

    @functools.cached_property
    def _store(self) -> S3Store:
        return open_store(self._filesystem, self._name)

    @functools.cached_property
    def _is_trusted(self) -> bool:
        return is_trusted(self._store)

    def _can_list(self, prefix: str) -> bool:
        """Return True if obstore lists these keys correctly: it drops slashes at the beginning of keys and prefixes."""
        if not prefix:
            return self.is_served("any") and not self.has_keys("/")
        return self.is_served(prefix.removesuffix("/"))

    def _pages(self, prefix: str, after: str) -> Iterator[list[Entry]]:
        stream = None

        def following() -> Any:
            nonlocal stream
            if stream is None:
                offset = just_before(after) if after.endswith("/") else after or None
                stream = obstore.list(self._store, prefix[:-1] or None, offset=offset, chunk_size=KEYS_A_PAGE)
            try:
                return next(stream, None)
            except Exception:
                stream = None
                raise

        while True:
            with log_wait(f"ListObjectsV2 on s3://{self._name}/{prefix}"):
                objects = retried("ListObjectsV2", self._name, prefix, following)
            if objects is None:
                return
            page = [entry for entry in map(self._entry, objects) if self.key(entry) > after]
            if page:
                yield page
                after = self.key(page[-1])

    def _may_lack_slashes(self, page: list[Entry], after: str) -> bool:
        """Return True if s3fs must list the page: obstore drops the slash at the end of keys that represent folders.

        Such an object is empty, or out of order, or precedes its content. Otherwise reading it finds it missing.
        """
        neighbours = pairwise([after, *map(self.key, page)])
        in_order = all(a < b and not b.startswith(f"{a}/") for a, b in neighbours)
        return not (page and in_order and all(entry.size for entry in page))

    def _entry(self, info: Any) -> Entry:
        name = f"{self._name}/{info['path']}"
        if not info["e_tag"]:
            return entry_of(name, dict(info))
        return Entry(name, info["size"], info["e_tag"].strip('"'), info["last_modified"].timestamp())

    def _get_by_s3fs(self, key: str, etag: str, first: int, stop: int | None, most: int | None) -> bytes:
        """Read with s3fs, which pins the version that it finds on opening."""
        with self._filesystem.open_by_s3fs(f"{self._name}/{key}") as file:
            size = file.details["size"]
            _require(key, etag, version_of(file.details), most, size)
            file.seek(max(size + first, 0) if first < 0 else first)
            count = -1 if stop is None else stop - first
            try:
                return bytes(file.read(count))
            except FileExpired as error:
                raise ObjectChanged(str(error)) from error


def just_before(folder: str) -> str:
    """Return a key that obstore accepts, and that sorts directly before `folder`, a key that ends with a slash."""
    return f"{folder[:-1]}.\U0010ffff"  # "." is the character before "/"


def _require(name: str, etag: str, current_etag: str, most: int | None, size: int) -> None:
    """Raise `ObjectChanged` if an object has another version than `etag`, and `TooLarge` above `most` bytes."""
    if etag and current_etag != etag:
        raise ObjectChanged(f"expected version {etag} of {name}, found {current_etag}")
    if most is not None and size > most:
        raise TooLarge(size)
