"""Start a Ray on this machine that other users cannot enter, and notice when it has ended.

Its processes listen on 127.0.0.1, and answer only calls with a token, which the environment of this process has. Its
logs, sockets and spilled rows are in a folder of the user's own: Ray makes its own folders writable by everyone.
Ray 2.60 waits a minute for its GCS (the process that knows nodes and actors), and then ends the driver without a word.
"""

import contextlib
import functools
import os
import secrets
import socket
import stat
import sys
import tempfile
from typing import Any

import ray

from overnight.tasks.errors import JobError, WorkerLost
from overnight.tasks.resources.ray_internals import is_started_here, on_loopback

LONGEST_SOCKET_PATH = 107  # bytes, on Linux
SOCKET = "session_2026-11-27_19-01-35_455258_4194304/sockets/plasma_store"  # with the longest number of a process
REFUSALS = 3  # in a row, one per look, because a single one may have another cause
CONNECT_SECONDS = 1.0


class RayEnded(WorkerLost):
    """The Ray that this process started has ended. Another try in this process cannot pass."""

    stage = ""  # `explain` fills in the stage during which it ended


def start_local_ray(**arguments: Any) -> Any:
    """Start Ray on this machine, for this process and its children. Arguments and result are those of `ray.init`."""
    if "RAY_AUTH_MODE" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN", _auth_token())  # otherwise Ray writes one to HOME
    if "_temp_dir" not in arguments:
        arguments["_temp_dir"] = session_folder()
    with on_loopback():
        return ray.init("local", **arguments)  # None would join the cluster that started last on this machine


@functools.cache
def _auth_token() -> str:
    """Return the same token each time: Ray keeps the first token of a process, even for a Ray that starts later."""
    return secrets.token_hex(32)


def session_folder() -> str:
    """Return the folder for the sessions of a local Ray, in a folder that only this user may enter."""
    system = os.environ.get("TMPDIR") if sys.platform == "linux" else None  # on macOS, TMPDIR is too long for sockets
    parent = os.path.abspath(os.environ.get("RAY_TMPDIR") or system or "/tmp")
    folder = os.path.join(_private_folder(parent), "s")
    excess = len(os.fsencode(os.path.join(folder, SOCKET))) - LONGEST_SOCKET_PATH
    if excess > 0:
        raise JobError(
            f"expected a folder for Ray's sockets with at most {len(os.fsencode(parent)) - excess} bytes in its path, "
            f"found {parent}. Set RAY_TMPDIR to a shorter one on a local disk."
        )
    return folder


def _private_folder(parent: str) -> str:
    """Return `parent`/ray-UID, or a new folder if that path is another user's or a link. Its mode is 0700."""
    os.makedirs(parent, exist_ok=True)
    folder = os.path.join(parent, f"ray-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, stat.S_IRWXU)
    entry = os.lstat(folder)
    if not stat.S_ISDIR(entry.st_mode) or entry.st_uid != os.geteuid():
        return tempfile.mkdtemp(prefix="ray-", dir=parent)
    os.chmod(folder, stat.S_IRWXU)
    return folder


def local_ray() -> "LocalRay":
    """Return the GCS that this process started; with the Ray of a cluster, return one that is never checked."""
    return LocalRay(ray.get_runtime_context().gcs_address if is_started_here() else "")


class LocalRay:
    """The GCS at `address`, and how often it refused a connection in a row. An empty address is never checked."""

    def __init__(self, address: str) -> None:
        self._address, self._refusals = address, 0

    def check(self) -> None:
        """Raise `RayEnded` if the GCS has refused the last connections. Call this once a second."""
        if not self._address:
            return
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
            self._refusals = 0
        except ConnectionRefusedError:
            self._refusals += 1
        except OSError:
            return  # a busy machine
        if self._refusals >= REFUSALS:
            raise RayEnded(
                f"the Ray of this machine has ended: expected its GCS process at {self._address}, found no process "
                "that listens. The usual cause is too little memory. Staged parts are kept; run again to resume.",
                error_type="RayEnded",
            )
