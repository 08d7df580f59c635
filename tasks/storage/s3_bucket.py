"""A bucket of S3. obstore lists its keys and reads versions of its objects; s3fs does what obstore cannot.

s3fs handles the keys for which obstore has no path (`a//b`, `a/../b`, a control character), follows redirects, and maps
errors to Python's classes. It also repeats requests that failed, because obstore would retry them unseen.
"""

import functools
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import obstore
from obstore.exceptions import InvalidPathError
from obstore.store import S3Store
from s3fs.utils import FileExpired

from overnight.tasks.storage.failed_requests import note
from overnight.tasks.storage.file_info import Entry, ObjectChanged, TooLarge, entry_of, version_of
from overnight.tasks.storage.s3_retries import RETRIES, say
from overnight.tasks.storage.s3_store import is_usable, log_wait, message, open_store, passing_problem, raise_known

KEYS_A_PAGE = 1000  # S3's maximum
REST_SECONDS = 30.0  # s3fs takes over for this time if obstore fails and s3fs does not


class Bucket:
    """The bucket `name` of S3. Requests use obstore, or `filesystem`, a `PatientS3`, where obstore fails."""

    def __init__(self, filesystem: Any, name: str) -> None:
        self._filesystem, self._name = filesystem, name
        self._has_answered, self._rests_until = False, 0.0

    def get(self, key: str, etag: str = "", first: int = 0, stop: int | None = None, most: int | None = None) -> bytes:
        """Return the bytes of an object from byte `first` to before byte `stop`, or to the end if `stop` is None.

        Raise `ObjectChanged` for another version than `etag`, `TooLarge` above `most` bytes, or an error of s3fs.
        """
        failure = None
        if self._may_ask():
            try:
                content = _get(self._store, key, etag, first, stop, most)
                self._has_answered = True
                return content
            except (TooLarge, ObjectChanged):
                raise
            except Exception as error:
                raise_known(error, self._has_answered)
                failure = error
                self._wait_after(error)
        content = _get_by_s3fs(self._filesystem, f"{self._name}/{key}", etag, first, stop, most)
        self._rest_after(failure)
        return content

    def pages(self, prefix: str, after: str = "") -> Iterator[list[Entry]]:
        """Yield lists of the entries below `prefix` whose keys sort after `after`, in the order of keys."""
        can_list = self._can_list(prefix)
        while True:
            failure = None
            if can_list and self._may_ask():
                try:
                    for page in self._pages(prefix, after):
                        if self._may_lack_slashes(page, after):
                            break
                        yield page
                        after = self.key(page[-1])
                    else:
                        return
                except Exception as error:
                    failure = error
                    self._wait_after(error)
            for answer in self.answers(prefix, after):  # a store may return no key and still have more
                if page := self.entries(answer):
                    break
            self._rest_after(failure)
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

    def _wait_after(self, failure: Exception) -> None:
        """Record a failure that may pass, and wait a moment before s3fs repeats the request."""
        if self._has_answered and (problem := passing_problem(failure)):
            note(f"s3://{self._name}: {problem}")
            time.sleep(RETRIES.wait_seconds(1))

    def _rest_after(self, failure: Exception | None) -> None:
        """Use s3fs for this bucket for a while if only obstore failed, without an outage and not for the key."""
        if failure is None or isinstance(failure, ValueError | InvalidPathError):
            return
        if not (self._has_answered and passing_problem(failure)):
            self._rests_until = time.monotonic() + REST_SECONDS
            say(f"s3fs reads from {self._name} for {REST_SECONDS:.0f} s, and takes more CPU time: {message(failure)}")

    def _may_ask(self) -> bool:
        is_payer = bool(self._filesystem.req_kw)  # then s3fs knows the headers to send
        return is_usable() and not is_payer and time.monotonic() >= self._rests_until

    def _can_list(self, prefix: str) -> bool:
        """Return True if obstore lists these keys correctly: it drops slashes at the beginning of keys and prefixes."""
        if not prefix:
            return not next(self.answers("/")).get("Contents")
        return "//" not in prefix and not prefix.startswith("/")

    def _pages(self, prefix: str, after: str) -> Iterator[list[Entry]]:
        offset = after or None
        if after.endswith("/"):
            offset = just_before(after)
        stream = obstore.list(self._store, prefix[:-1] or None, offset=offset, chunk_size=KEYS_A_PAGE)
        while True:
            with log_wait(f"ListObjectsV2 on s3://{self._name}/{prefix}"):
                objects = next(stream, None)
            if objects is None:
                return
            self._has_answered = True
            page = [entry for entry in map(self._entry, objects) if self.key(entry) > after]
            if page:
                yield page
                after = self.key(page[-1])

    def _may_lack_slashes(self, page: list[Entry], after: str) -> bool:
        """Return True if s3fs must list the page: obstore drops the slash at the end of keys that represent folders.

        Such an object is empty, or out of order, or precedes its content. Otherwise reading it finds it missing.
        """
        neighbours = pairwise([after, *map(self.key, page)])
        return not (
            all(entry.size for entry in page) and all(a < b and not b.startswith(f"{a}/") for a, b in neighbours)
        )

    def _entry(self, info: Any) -> Entry:
        name = f"{self._name}/{info['path']}"
        if not info["e_tag"]:
            return entry_of(name, dict(info))
        return Entry(name, info["size"], info["e_tag"].strip('"'), info["last_modified"].timestamp())


def just_before(folder: str) -> str:
    """Return a key that obstore accepts, and that sorts directly before `folder`, a key that ends with a slash."""
    return f"{folder[:-1]}.\U0010ffff"  # "." is the character before "/"


def _get(store: S3Store, key: str, etag: str, first: int, stop: int | None, most: int | None) -> bytes:
    options: Any = {}
    if etag:
        options["if_match"] = f'"{etag}"'
    if stop is not None:
        options["range"] = (first, stop)
    answer = obstore.get(store, key, options=options)
    # a server without support for If-Match may return another version
    _require(key, etag, (answer.meta["e_tag"] or "").strip('"'), most, answer.meta["size"])
    return bytes(answer.bytes())


def _get_by_s3fs(filesystem: Any, path: str, etag: str, first: int, stop: int | None, most: int | None) -> bytes:
    """Read with s3fs, which pins the version that it finds on opening."""
    with filesystem.open(path, "rb", cache_type="none") as file:
        _require(path, etag, version_of(file.details), most, file.details["size"])
        file.seek(first)
        size = -1 if stop is None else stop - first
        try:
            return bytes(file.read(size))
        except FileExpired as error:
            raise ObjectChanged(str(error)) from error


def _require(name: str, etag: str, current_etag: str, most: int | None, size: int) -> None:
    """Raise `ObjectChanged` if an object has another version than `etag`, and `TooLarge` above `most` bytes."""
    if etag and current_etag != etag:
        raise ObjectChanged(f"expected version {etag} of {name}, found {current_etag}")
    if most is not None and size > most:
        raise TooLarge(size)
