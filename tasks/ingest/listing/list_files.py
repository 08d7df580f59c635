"""The listing of a partition's inputs, and the wait until they have arrived.

Inputs have arrived when a marker file exists, or the listing has been quiet for a while. Waiting changes only when a
run starts, and no result. A partition that arrived long ago passes immediately.
"""

import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

from overnight.tasks.config.retry_policy import RetryPolicy
from overnight.tasks.errors import InputError
from overnight.tasks.ingest.source import FileSource, Source, WaitFor
from overnight.tasks.state.manifest import ListingDigest
from overnight.tasks.storage import skipped_files
from overnight.tasks.storage.error_translation import translate_listing_errors
from overnight.tasks.storage.file_info import NoInputs
from overnight.tasks.storage.location import File

LONGEST_SECONDS = 60.0  # between two checks of the inputs
LOOKS = RetryPolicy(None, first_wait_seconds=2.0, longest_wait_seconds=LONGEST_SECONDS, jitter=(1, 1), growth=1.5)

_log = logging.getLogger("overnight.arrival")


def list_inputs(source: Source, partition: str) -> list[File]:
    """Return the files of a partition, in the order in which the source lists them. Raise like `stream_inputs`."""
    return list(stream_inputs(source, partition))


def stream_inputs(source: Source, partition: str) -> Iterator[File]:
    """Yield the files of a partition while the source lists them, in its order.

    Raise `InputError` if they cannot be listed or must not be missing, and `ServiceUnavailable` like the source.
    """
    is_empty = True
    with translate_listing_errors(source.place(partition)):
        for file in source.files(partition):
            is_empty = False
            yield file
    if is_empty and not source.allow_empty:
        description = f"files ending in {', '.join(source.extensions)}" if source.extensions else "files"
        summary = skipped_files.told_so_far()
        note = f" (passed over: {summary})" if summary else ""
        raise InputError(
            f"source.{source.located_by}: expected {description} below {source.place(partition)}, found none{note}. "
            "Set source.allow_empty: true if an empty partition is expected."
        )


class StableListing:
    """Measures for how long a listing has been quiet, which means unchanged. Call `seconds` with each new listing.

    The times of change count, so that an old partition is quiet at the first call. But a removal leaves no time, so the
    result is never longer than the time since the last change between two calls.
    """

    def __init__(self) -> None:
        self._digest: str | None = None
        self._since = 0.0

    def seconds(self, listing: ListingDigest, clock: float, own_time: float) -> float:
        newest = listing.newest_change if listing.has_times else None
        if self._digest is None:
            self._since = own_time if newest is None else float("-inf")
        elif listing.digest != self._digest:
            self._since = own_time
        self._digest = listing.digest
        quiet_seconds = own_time - self._since
        return quiet_seconds if newest is None else min(quiet_seconds, max(0.0, clock - newest))


def wait_for_arrival(
    source: FileSource, wait_for: WaitFor, partition: str, tell: Callable[[str], None] = _log.info
) -> None:
    """Wait until the partition's inputs have arrived. Raise `InputError` if they do not in time."""
    wait_until(partial(lacking_inputs, source, wait_for, partition, StableListing()), wait_for.timeout_minutes, tell)


def wait_until(look: Callable[[], str], timeout_minutes: float, tell: Callable[[str], None] = _log.info) -> None:
    """Call `look` until it returns an empty string instead of a sentence on the missing inputs."""
    start, last_message, pauses = time.monotonic(), float("-inf"), LOOKS.waits()
    while lacking := look():
        remaining = timeout_minutes * 60 - (time.monotonic() - start)
        if remaining <= 0:
            raise InputError(
                f"source.wait_for: {lacking}, after waiting for {timeout_minutes:g} minutes. Check "
                "the delivery; run the partition again once it is complete, or raise timeout_minutes."
            )
        if time.monotonic() - last_message >= LONGEST_SECONDS:
            tell(f"waiting for the inputs, for at most {remaining / 60:.1f} more minutes: {lacking}")
            last_message = time.monotonic()
        time.sleep(min(next(pauses), remaining))


def require_arrival(source: FileSource, wait_for: WaitFor, partition: str) -> None:
    """Raise `InputError` if the partition's inputs have not arrived. Do not wait for them."""
    if lacking := lacking_inputs(source, wait_for, partition, StableListing()):
        raise InputError(
            f"source.wait_for: {lacking}. Check the delivery; a run waits for {wait_for.timeout_minutes:g} minutes."
        )


def lacking_inputs(source: FileSource, wait_for: WaitFor, partition: str, quiet: StableListing) -> str:
    """Return an empty string if all inputs have arrived, otherwise a sentence on what was expected and found."""
    if wait_for.file is not None:
        for folder in source.folders(partition):
            if not (folder / wait_for.file).exists():
                return f"expected the file {folder / wait_for.file}, found none"
    if wait_for.quiet_minutes is None:
        return ""
    root = source.place(partition)
    listing = ListingDigest()
    with translate_listing_errors(root):
        try:
            for _ in listing.of(source.files(partition)):
                pass
        except NoInputs as error:
            return str(error).partition(". ")[0]
        except FileNotFoundError:  # a folder that does not exist yet
            pass
    if not listing.count and not source.allow_empty:
        return f"expected inputs at {root}, found none"
    seconds = quiet.seconds(listing, datetime.now(UTC).timestamp(), time.monotonic())
    if seconds >= wait_for.quiet_minutes * 60:
        return ""
    return (
        f"expected no change at {root} for {wait_for.quiet_minutes:g} minutes, found {listing.count:,} files and the "
        f"last change {seconds / 60:.1f} minutes ago"
    )
