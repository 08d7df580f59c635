"""Waits for inputs that have not fully arrived, until a marker file exists, or the listing has been quiet for a while.

Waiting changes only when a run starts, and no result. A partition that arrived long ago passes immediately.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import find_files
from overnight.tasks.ingest.source import FileSource, WaitFor
from overnight.tasks.state.manifest import ListingDigest, census
from overnight.tasks.storage.file_info import NoInputs

LONGEST_SECONDS = 60.0  # between two checks of the inputs
LOOKS = RetryPolicy(None, first_wait_seconds=2.0, longest_wait_seconds=LONGEST_SECONDS, jitter=(1, 1), growth=1.5)

_log = logging.getLogger("overnight.arrival")


class StableListing:
    """Measures for how long a listing has been quiet, which means unchanged. Call `seconds` with each new listing.

    If the listing has times of change, they count, so that an old partition is quiet at the first call. But a removal
    leaves no time. So the result is never longer than the time since the last change between two calls. Without times,
    only the time since the first call or the last change counts.
    """

    def __init__(self) -> None:
        self._seen: str | None = None
        self._since = 0.0

    def seconds(self, found: ListingDigest, clock: float, own_time: float) -> float:
        """Return the seconds for which the listing `found` has been quiet.

        `clock` is the current time in seconds since 1970, as in the storage's times. `own_time` is the current time in
        seconds of this process's monotonic clock.
        """
        newest = found.newest_change if found.has_times else None
        if self._seen is None:
            self._since = own_time if newest is None else float("-inf")
        elif found.digest != self._seen:
            self._since = own_time
        self._seen = found.digest
        unchanged = own_time - self._since
        return unchanged if newest is None else min(unchanged, max(0.0, clock - newest))


def wait_for_arrival(
    source: FileSource, wait_for: WaitFor, partition: str, tell: Callable[[str], None] = _log.info
) -> None:
    """Wait until the partition's inputs have arrived, as `wait_for` defines it.

    About once per minute, call `tell` with a sentence on the missing inputs. Raise `InputError` after
    `wait_for.timeout_minutes`, or if the source cannot be listed. Raise `ServiceUnavailable` if a later attempt may
    succeed.
    """
    wait_until(partial(_lacking, source, wait_for, partition, StableListing()), wait_for.timeout_minutes, tell)


def wait_until(look: Callable[[], str], timeout_minutes: float, tell: Callable[[str], None] = _log.info) -> None:
    """Call `look`, with pauses of 2 to 60 seconds, until it returns an empty string.

    Before that, it returns a sentence on the missing inputs. About once per minute, call `tell` with the sentence.
    Raise `InputError` after `timeout_minutes`.
    """
    started, told, pauses = time.monotonic(), float("-inf"), LOOKS.waits()
    while lacking := look():
        waited = time.monotonic() - started
        left = timeout_minutes * 60 - waited
        if left <= 0:
            raise InputError(
                f"source.wait_for: {lacking}, after waiting for {timeout_minutes:g} minutes. Check "
                "the delivery; run the partition again once it is complete, or raise timeout_minutes."
            )
        if time.monotonic() - told >= LONGEST_SECONDS:
            tell(f"waiting for the inputs, for at most {left / 60:.1f} more minutes: {lacking}")
            told = time.monotonic()
        time.sleep(min(next(pauses), left))


def require_arrival(source: FileSource, wait_for: WaitFor, partition: str) -> None:
    """Raise `InputError` if the partition's inputs have not arrived, as `wait_for` defines it. Do not wait for them.

    Raise `InputError` also if the source cannot be listed, and `ServiceUnavailable` if a later attempt may succeed.
    """
    if lacking := _lacking(source, wait_for, partition, StableListing()):
        raise InputError(
            f"source.wait_for: {lacking}. Check the delivery; a run waits for {wait_for.timeout_minutes:g} minutes."
        )


def _lacking(source: FileSource, wait_for: WaitFor, partition: str, quiet: StableListing) -> str:
    """Return an empty string if all inputs have arrived, otherwise a sentence on what was expected and found."""
    if wait_for.file is not None:
        for folder in source.folders(partition):
            if not (folder / wait_for.file).exists():
                return f"expected the file {folder / wait_for.file}, found none"
    if wait_for.quiet_minutes is None:
        return ""
    place, missing = source.place(partition), list[FileNotFoundError]()
    found = census(find_files(source, partition, missing))
    if missing and isinstance(missing[0], NoInputs):
        return str(missing[0]).partition(". ")[0]
    if not found.count and not source.allow_empty:
        return f"expected inputs at {place}, found none"
    seconds = quiet.seconds(found, datetime.now(UTC).timestamp(), time.monotonic())
    if seconds >= wait_for.quiet_minutes * 60:
        return ""
    return (
        f"expected no change at {place} for {wait_for.quiet_minutes:g} minutes, found {found.count:,} files and the "
        f"last change {seconds / 60:.1f} minutes ago"
    )
