"""The lease of a partition, with which only one run at a time works on it.

It works on any filesystem that can create a file only if it does not exist. A lease is a numbered file, such as
`lease/00000007`; its number is the fencing token. A run takes the partition by creating the file of the next number,
which succeeds for one run only, on S3 as on a disk. The holder renews its own file. A run that creates a higher number
has taken over. The former holder finds this when it checks its token before it publishes. No clocks are compared. A
lease is abandoned when its content has not changed for `EXPIRY_SECONDS` of the watcher's own time. If its process is
known to be gone from this machine, it is abandoned immediately.
"""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from overnight.tasks.errors import OvernightError
from overnight.tasks.storage.location import Location

RENEWAL_SECONDS = 5.0
EXPIRY_SECONDS = 30.0
WATCH_SECONDS = 1.0
SILENT_SECONDS = 2 * EXPIRY_SECONDS  # the clocks of two machines may differ by part of it


class PartitionBusy(OvernightError):
    """Another run holds the partition."""


class LeaseLost(OvernightError):
    """Another run has taken the partition over; this one must not publish."""

    stage = "write"


@dataclass(frozen=True)
class Holder:
    """The process that took a partition and has not released it.

    `token` is the fencing token of its lease. `owner` is the attempt's name, and `flow_run` the run's id in Prefect.
    `is_alive` is False if the process on `host` is gone, or has not renewed its lease for `SILENT_SECONDS`.
    """

    token: int
    owner: str
    host: str
    flow_run: str
    is_alive: bool
    renewed_at: str  # the last sign of life: UTC, ISO 8601


@contextlib.contextmanager
def held(
    ledger: Location, owner: str, flow_run: str = "", on_dead_holder: Callable[[str], None] | None = None
) -> Iterator[int]:
    """Hold the lease on a partition while the body runs, and yield its fencing token. A thread renews the lease.

    Other runs read `owner` (the attempt's name) and `flow_run` (its id in Prefect) from the lease. If the previous
    holder died, `on_dead_holder` is called with that run's id in Prefect. Raise `PartitionBusy` if another run renews
    its lease.
    """
    token, dead = _acquire(ledger, owner, flow_run)
    if dead and on_dead_holder:
        on_dead_holder(dead)
    stop = threading.Event()
    thread = threading.Thread(target=_renew, args=(ledger, token, owner, flow_run, stop), name="lease", daemon=True)
    thread.start()
    try:
        yield token
    finally:
        stop.set()
        thread.join()
        with contextlib.suppress(Exception):  # a lease that cannot be released expires
            if _newest(ledger) == token:
                _file(ledger, token).write_bytes(_content(owner, flow_run, released=True))


def check(ledger: Location, token: int) -> None:
    """Raise `LeaseLost` if a later run has taken over the partition from the run with this `token`.

    Raise it also if no lease is there, because the ledger's folder was deleted.
    """
    newest = _newest(ledger)
    if not newest:
        raise LeaseLost(
            f"expected the lease {token} of this run in {ledger}, found none: the folder was deleted or emptied while "
            "the run worked. Nothing was published, and its staged rows may be gone. Run again; if the sink's folder "
            "must be cleared, do it while no run is under way."
        )
    if newest != token:
        found = f"its lease is {newest}, this run's {token}"
        raise LeaseLost(f"a later run has taken over: {found}. Nothing was published.")


def holder(ledger: Location) -> str:
    """Return the run that holds the partition as a text, such as `ATTEMPT on HOST`; an empty string if no run does.

    This only reads the lease. So a dead run on another machine counts as the holder, until a later run takes over.
    """
    newest = _newest(ledger)
    try:
        content = _file(ledger, newest).read_bytes() if newest else b""
    except FileNotFoundError:
        return "a run that begins"
    if not newest or _is_over(content):
        return ""
    found = json.loads(content)
    return f"{found['owner']} on {found['host']}"


def left_by(ledger: Location) -> Holder | None:
    """Return the last holder of the partition, alive or dead; None if it released the lease or there never was one.

    This only reads the lease.
    """
    newest = _newest(ledger)
    try:
        return read_holder(newest, _file(ledger, newest).read_bytes()) if newest else None
    except FileNotFoundError:
        return None  # taken over between the two reads


def read_holder(token: int, content: bytes) -> Holder | None:
    """Return the holder that a lease's file names; None if the lease is released.

    `token` is the number of the lease, and `content` the bytes of its file. Use the result only for reports: whether a
    holder on another machine is alive depends on that machine's clock.
    """
    found: dict[str, Any] = json.loads(content)
    if found["released"]:
        return None
    is_here = found["host"] == socket.gethostname() and found["started"] is not None
    silent = (time.time_ns() - found["renewed"]) / 1e9
    is_alive = not _is_over(content) if is_here else silent < SILENT_SECONDS
    renewed_at = datetime.fromtimestamp(found["renewed"] // 10**9, UTC).isoformat().replace("+00:00", "Z")
    return Holder(token, found["owner"], found["host"], found.get("flow_run", ""), is_alive, renewed_at)


def _acquire(ledger: Location, owner: str, flow_run: str) -> tuple[int, str]:
    """Return the new token, and the flow run of the previous holder if it died."""
    unchanged_seconds = 0.0  # while the storage answered: in an outage no run can renew
    seen: bytes | None = None
    while True:
        newest = _newest(ledger)
        try:
            content = _file(ledger, newest).read_bytes() if newest else b""
        except FileNotFoundError:
            continue  # taken over between the two reads
        if newest and not _is_over(content):
            if content != seen and seen is not None:
                found = json.loads(content)
                raise PartitionBusy(
                    f"another run ({found['owner']} on {found['host']}) is working on {ledger} and renews its lease. "
                    "Wait for it to end, or cancel it."
                )
            seen = content
            if unchanged_seconds < EXPIRY_SECONDS:
                time.sleep(WATCH_SECONDS)
                unchanged_seconds += WATCH_SECONDS
                continue
        with contextlib.suppress(FileExistsError):
            _file(ledger, newest + 1).create(_content(owner, flow_run))
            if newest:
                _file(ledger, newest).remove()
            before: dict[str, Any] = json.loads(content) if newest else {"released": True}
            return newest + 1, "" if before["released"] else before.get("flow_run", "")
        seen, unchanged_seconds = None, 0.0


def _renew(ledger: Location, token: int, owner: str, flow_run: str, stop: threading.Event) -> None:
    while not stop.wait(RENEWAL_SECONDS):
        with contextlib.suppress(Exception):  # failing storage is tried again; publish checks the token anyway
            if _newest(ledger) != token:
                return
            _file(ledger, token).write_bytes(_content(owner, flow_run))


def _newest(ledger: Location) -> int:
    return max((int(name) for name in (ledger / "lease").names() if name.isdecimal()), default=0)


def _file(ledger: Location, token: int) -> Location:
    return ledger / "lease" / f"{token:08d}"


def _content(owner: str, flow_run: str, released: bool = False) -> bytes:
    process = {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}
    return json.dumps(
        {"owner": owner, "flow_run": flow_run, "released": released, "renewed": time.time_ns(), **process}
    ).encode()


def _is_over(content: bytes) -> bool:
    """Return True if a lease was released, or its process on this machine is gone."""
    lease: dict[str, Any] = json.loads(content)
    if lease["released"]:
        return True
    if lease["host"] != socket.gethostname() or lease["started"] is None:
        return False
    return _started(lease["pid"]) != lease["started"]


def _started(pid: int) -> str | None:
    """Return the start of a process in the kernel's ticks; None without such a process or without Linux's /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None
