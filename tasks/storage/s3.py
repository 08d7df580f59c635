"""S3 that is waited for: a server that is gone, frozen, or asks to slow down costs time and nothing else.

Every request, of a listing's page as of an upload's part, goes through botocore's event `needs-retry`; what answers
there decides whether it is sent again. botocore's own retries count attempts: five take two seconds with a server that
refuses and two minutes with one that is silent. Here time is what counts: `PATIENCE_SECONDS` a request from its first
failure, or `OVERNIGHT_STORAGE_RETRY_SECONDS` where a process has that in its environment. Who waits says so in the log.

Two things in here belong to s3fs 2026.9 itself: that all its clients come out of `set_session`, and that
`cat_ranges` hands its keywords to `_cat_file`. `tests/tasks/storage/test_s3.py` fails when they move.
"""

import asyncio
import logging
import os
import random
import time
from collections import deque
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp  # noqa: F401 - first: aiobotocore asks for a part of it, which is there before it is complete
from fsspec.asyn import sync
from s3fs import S3FileSystem
from s3fs.utils import FileExpired

from overnight.tasks.errors import JobError, StorageFailed
from overnight.tasks.storage.s3_fast_get import QuickGets, quick_gets, threads
from overnight.tasks.storage.s3_list_parser import compare_count, take_objects
from overnight.tasks.storage.transient_errors import is_passing, status_of

PATIENCE_SECONDS = 120.0
RETRY_SECONDS, FORMERLY = "OVERNIGHT_STORAGE_RETRY_SECONDS", "OVERNIGHT_STORAGE_PATIENCE"  # in the environment
LONGEST_WAIT_SECONDS = 8.0
BODY_TRIES = 5
LOG_EVERY_SECONDS = 10.0

_log = logging.getLogger("overnight.storage")
_logged: deque[float] = deque(maxlen=1)


class PatientS3(S3FileSystem):
    """s3fs, but it waits as above, and reads the versions that it is asked for."""

    def __init__(self, **options: Any) -> None:
        once = {"mode": "standard", "total_max_attempts": 1}
        super().__init__(**{**options, "config_kwargs": {**(options.get("config_kwargs") or {}), "retries": once}})
        self._known_client: Any = None
        self._quick: dict[str, QuickGets | None] = {}

    async def set_session(self, refresh: bool = False, kwargs: dict[str, Any] = {}) -> Any:  # noqa: B006 - s3fs's own
        client = await super().set_session(refresh=refresh, kwargs=kwargs)
        if client is not self._known_client:  # asked for before every request
            client.meta.events.register_first("needs-retry.s3", seconds_to_wait, unique_id="overnight-patience")
            # By this name it comes before botocore's own, which are registered by `before-parse.s3.*`.
            client.meta.events.register("before-parse.*.ListObjectsV2", take_objects, unique_id="overnight-listing")
            client.meta.events.register("after-call.s3.ListObjectsV2", compare_count, unique_id="overnight-count")
            self._known_client, self._quick = client, {}
        return client

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, etags: Any = None, **others: Any
    ) -> bytes:
        if etags is None:  # one request: s3fs would ask for the size first, to fetch a large file in pieces
            return bytes(await super()._cat_file(path, start=start, end=end, **{"max_concurrency": 1, **others}))
        bucket, key, _ = self.split_path(path)
        match = {"IfMatch": f'"{etags[path]}"'} if etags[path] else {}
        for tried in range(1, BODY_TRIES + 1):
            try:
                answer = await self._call_s3("get_object", Bucket=bucket, Key=key, **match)
            except OSError as error:
                raise FileExpired(path, etags[path]) if status_of(error) == 412 else error from error.__cause__
            try:
                if match and answer["ETag"].strip('"') != etags[path]:  # from a server that does not know If-Match
                    raise FileExpired(path, etags[path])
                return bytes(await answer["Body"].read())
            except Exception as error:
                if tried == BODY_TRIES or not is_passing(error):
                    raise
                await asyncio.sleep(random.uniform(0, 0.2 * 2**tried))
            finally:
                answer["Body"].close()
        raise AssertionError("unreachable: the last try returns or raises")

    def read_versions(self, paths: Sequence[str], etags: Sequence[str]) -> list[Any]:
        """Whole objects of these ETags (any, where it is empty); in the place of each that cannot be had, its error."""
        found = self._read_quickly(paths, etags)
        if left := [place for place, content in enumerate(found) if content is None]:
            wanted = {paths[place]: etags[place] for place in left}
            others = self.cat_ranges([paths[place] for place in left], None, None, on_error="return", etags=wanted)
            for place, content in zip(left, others, strict=True):
                found[place] = content
        return found

    def _read_quickly(self, paths: Sequence[str], etags: Sequence[str]) -> list[Any]:
        client = sync(self.loop, self.set_session)
        split = [self.split_path(path)[:2] for path in paths]
        for bucket in {bucket for bucket, _ in split} - self._quick.keys():
            self._quick[bucket] = quick_gets(bucket, client, None if self.anon else self.ask_for_credentials)
        gets = self._quick

        def get(place: tuple[str, str], etag: str) -> bytes | None:
            bucket, key = place
            return quick.get(key, etag) if (quick := gets[bucket]) else None

        return list(threads().map(get, split, etags))

    def ask_for_credentials(self) -> Any:
        """botocore's, as they are now."""

        async def ask() -> Any:
            return await (await self.session.get_credentials()).get_frozen_credentials()

        return sync(self.loop, ask)

    async def _pipe_file(self, path: str, *arguments: Any, **options: Any) -> Any:
        """An object that is there already is a `FileExistsError`, also where a server answers 412 without naming the
        condition: s3fs looks for that name, which AWS gives and others do not (ministack, for one).
        """
        try:
            return await super()._pipe_file(path, *arguments, **options)
        except OSError as error:
            if options.get("mode") == "create" and status_of(error) == 412:
                raise FileExistsError(f"{path} is there") from error
            raise


def retry_timeout_seconds() -> float:
    """How long a request is tried again. Raise `JobError` where the environment has it under its former name."""
    if FORMERLY in os.environ:
        raise JobError(f"{FORMERLY} is called {RETRY_SECONDS} now: rename it in the environment.")
    return float(os.environ.get(RETRY_SECONDS) or PATIENCE_SECONDS)


def seconds_to_wait(
    attempts: int,
    request_dict: dict[str, Any],
    operation: Any,
    response: Any = None,
    caught_exception: Exception | None = None,
    **_others: Any,
) -> float | None:
    """botocore's question after each try: seconds until the next one, or None if the outcome stands.

    Raises `StorageFailed` when the patience is at its end.
    """
    problem = _passing_problem(response, caught_exception)
    if problem is None:
        return None
    now, patience = time.monotonic(), retry_timeout_seconds()
    since = request_dict["context"].setdefault("overnight_first_failure", now)
    what = f"{operation.name} on {_place(request_dict['url'])}"
    if now - since >= patience:
        raise StorageFailed(
            f"the storage did not recover: {what} was tried {attempts} times in {now - since:.0f} s and failed, last "
            f"with {problem}. Nothing was published; run again to resume where the staged parts end."
        )
    wait = min(LONGEST_WAIT_SECONDS, 0.1 * 2**attempts) * random.uniform(0.5, 1)
    _say(f"waiting for storage: {what} failed with {problem}; trying for {patience - (now - since):.0f} s more")
    return min(wait, patience - (now - since))


def _passing_problem(response: Any, caught: Exception | None) -> str | None:
    if caught is not None:
        return f"{type(caught).__name__}: {caught}" if is_passing(caught) else None
    status, parsed = response[0].status_code, response[1]
    if status < 300 or not is_passing(_Answer(parsed, status)):
        return None
    error = parsed.get("Error", {})
    return f"{status} {error.get('Code', '')}: {error.get('Message', '')}"


class _Answer(Exception):
    """A server's refusal, in the form in which `is_passing` knows one."""

    def __init__(self, parsed: dict[str, Any], status: int) -> None:
        super().__init__()
        self.response = {"Error": parsed.get("Error", {}), "ResponseMetadata": {"HTTPStatusCode": status}}


def _place(url: str) -> str:
    """The address without its query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{unquote(parts.path)}"


def _say(sentence: str) -> None:
    """A warning, but not one for each of the hundreds of requests that wait for the same thing."""
    if not _logged or time.monotonic() - _logged[0] > LOG_EVERY_SECONDS:
        _logged.append(time.monotonic())
        _log.warning(sentence)
