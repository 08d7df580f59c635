"""The lease of a partition, with which only one run at a time works on it, on any filesystem with a conditional create.

A lease is a numbered file, such as `lease/00000007`; its number is the fencing token. A run takes the partition by
creating the file of the next number, which succeeds for one run only. The holder renews its own file, and checks its
token before it publishes. No clocks are compared: a lease is abandoned when its content has not changed for
`EXPIRY_SECONDS` of the watcher's own time, or immediately if its process is known to be gone from this machine.
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

DRAFTS = "drafts"
_NO_LEASE: dict[str, Any] = {"released": True, "flow_run": ""}


class PartitionBusy(OvernightError):
    """Another run holds the partition."""


class LeaseLost(OvernightError):
    """Another run has taken the partition over; this one must not publish."""

    stage = "write"


@dataclass(frozen=True)
class Holder:
    """The process that took a partition and has not released it."""

    token: int
    owner: str  # the attempt's name
    host: str
    flow_run: str  # the id in Prefect
    is_alive: bool
    renewed_at: str  # the last sign of life: UTC, ISO 8601


@contextlib.contextmanager
def held(
    ledger: Location, owner: str, flow_run: str = "", on_dead_holder: Callable[[str], None] | None = None
) -> Iterator[int]:
    """Hold the lease on a partition while the body runs, and yield its fencing token. A thread renews the lease.

    `on_dead_holder` gets the flow run of a holder that died. Raise `PartitionBusy` if another run renews its lease.
    """
    token, dead_flow_run = _acquire(ledger, owner, flow_run)
    for name in (ledger / DRAFTS).names():
        if name != drafts(ledger, token).name:
            (ledger / DRAFTS / name).remove()
    if dead_flow_run and on_dead_holder:
        on_dead_holder(dead_flow_run)
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
    """Raise `LeaseLost` if a later run has taken over the partition from the run with this `token`."""
    newest = _newest(ledger)
    if not newest:
        raise LeaseLost(
            f"expected the lease {token} of this run in {ledger}, found none: the folder was deleted or emptied while "
            "the run worked. Nothing was published, and its staged rows may be gone. Run again; if the sink's folder "
            "must be cleared, do it while no run is under way."
        )
    if newest != token:
        raise LeaseLost(
            f"a later run has taken over: its lease is {newest}, this run's {token}. Nothing was published."
        )


def drafts(ledger: Location, token: int) -> Location:
    """Return the folder for files that the run with this `token` is about to put in place; see `fenced.py`."""
    return ledger / DRAFTS / f"{token:08d}"


def holder(ledger: Location) -> str:
    """Return the run that holds the partition, `ATTEMPT on HOST`, or an empty string. One elsewhere may be dead."""
    try:
        _, lease = _read_newest(ledger)
    except FileNotFoundError:
        return "a run that begins"
    return "" if _is_over(lease) else f"{lease['owner']} on {lease['host']}"


def left_by(ledger: Location) -> Holder | None:
    """Return the last holder of the partition, alive or dead; None if it released the lease or there never was one."""
    try:
        return _holder(*_read_newest(ledger))
    except FileNotFoundError:
        return None  # taken over between the two reads


def read_holder(token: int, content: bytes) -> Holder | None:
    """Return the holder that a lease's `content` names, for reports: elsewhere, its clock decides if it is alive."""
    return _holder(token, json.loads(content))


def _holder(token: int, lease: dict[str, Any]) -> Holder | None:
    if lease["released"]:
        return None
    is_alive = not _is_over(lease)
    if lease["host"] != socket.gethostname() or lease["started"] is None:
        is_alive = (time.time_ns() - lease["renewed"]) / 1e9 < SILENT_SECONDS
    renewed_at = datetime.fromtimestamp(lease["renewed"] // 10**9, UTC).isoformat().replace("+00:00", "Z")
    return Holder(token, lease["owner"], lease["host"], lease.get("flow_run", ""), is_alive, renewed_at)


def _acquire(ledger: Location, owner: str, flow_run: str) -> tuple[int, str]:
    """Return the new token, and the flow run of the previous holder if it died."""
    unchanged_seconds = 0.0  # while the storage answered: in an outage no run can renew
    previous: dict[str, Any] | None = None
    while True:
        try:
            newest, lease = _read_newest(ledger)
        except FileNotFoundError:
            continue  # taken over between the two reads
        if not _is_over(lease):
            if lease != previous and previous is not None:
                raise PartitionBusy(
                    f"another run ({lease['owner']} on {lease['host']}) is working on {ledger} and renews its lease. "
                    "Wait for it to end, or cancel it."
                )
            previous = lease
            if unchanged_seconds < EXPIRY_SECONDS:
                time.sleep(WATCH_SECONDS)
                unchanged_seconds += WATCH_SECONDS
                continue
        with contextlib.suppress(FileExistsError):
            _file(ledger, newest + 1).create(_content(owner, flow_run))
            if newest:
                _file(ledger, newest).remove()
            return newest + 1, "" if lease["released"] else lease.get("flow_run", "")
        previous, unchanged_seconds = None, 0.0


def _renew(ledger: Location, token: int, owner: str, flow_run: str, stop: threading.Event) -> None:
    while not stop.wait(RENEWAL_SECONDS):
        with contextlib.suppress(Exception):  # failing storage is tried again; publish checks the token anyway
            if _newest(ledger) != token:
                return
            _file(ledger, token).write_bytes(_content(owner, flow_run))


def _read_newest(ledger: Location) -> tuple[int, dict[str, Any]]:
    """Return the token and the content of the newest lease. Without one, the token is 0, and the lease is released."""
    newest = _newest(ledger)
    return newest, json.loads(_file(ledger, newest).read_bytes()) if newest else _NO_LEASE


def _newest(ledger: Location) -> int:
    return max((int(name) for name in (ledger / "lease").names() if name.isdecimal()), default=0)


def _file(ledger: Location, token: int) -> Location:
    return ledger / "lease" / f"{token:08d}"


def _content(owner: str, flow_run: str, released: bool = False) -> bytes:
    process = {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}
    lease = {"owner": owner, "flow_run": flow_run, "released": released, "renewed": time.time_ns(), **process}
    return json.dumps(lease).encode()


def _is_over(lease: dict[str, Any]) -> bool:
    """Return True if a lease was released, or its process on this machine is gone."""
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
