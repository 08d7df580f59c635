"""The Ray of a run: check a cluster's address, or start one on this machine, and notice when it has ended.

A local Ray listens on 127.0.0.1, and answers only calls with a token, which the environment of this process has. Its
logs, sockets and spilled rows are in a folder of the user's own: Ray makes its own folders writable by everyone.
This file imports Ray, which takes seconds, only where Ray is used: commands check an address without it.
"""

import contextlib
import functools
import importlib
import logging
import os
import secrets
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import psutil

from overnight.tasks.errors import JobError, WorkerLost
from overnight.tasks.workers import fork_server

if TYPE_CHECKING:
    from overnight.flows.job.model import Job

# Names, because this process does not wait for the imports. Every CPU worker needs the first ones for its first row.
WORKER_IMPORTS = (
    "overnight.tasks.infer.in_process",
    "overnight.tasks.ingest.in_process",
    "overnight.tasks.preprocess.in_process",
    "overnight.tasks.workers.pickling",
)
S3_IMPORTS = "overnight.tasks.storage.list_s3"
WRITER_IMPORTS = "overnight.tasks.write.stream.staging"

LONGEST_SOCKET_PATH = 107  # bytes, on Linux
SOCKET = "session_2026-11-27_19-01-35_455258_4194304/sockets/plasma_store"  # with the longest number of a process
REFUSALS = 3  # in a row, one per look, because a single one may have another cause
CONNECT_SECONDS = 1.0
START_TIMEOUT = "timed out during startup"  # Ray 2.60 raises an `Exception` with these words

logger = logging.getLogger(__name__)


class RayEnded(WorkerLost):
    """The Ray that this process started has ended. Another try in this process cannot pass."""

    stage = ""  # `explain` fills in the stage during which it ended


def check_ray_address(address: str | None = None, where: str = "RAY_ADDRESS") -> None:
    """Raise `JobError` for an address that a run cannot use, or if this process uses Ray Client already.

    A run is a driver, which reads the state of Ray's core in its process. Ray Client (`ray://`) has no such core.
    """
    if address is None:
        client = sys.modules.get("ray.util.client")
        if client and client.ray.is_connected():
            address, where = "ray://", "ray.init"
        else:
            address = os.environ.get("RAY_ADDRESS", "")
    if "://" in address:
        raise JobError(
            f"{where}: expected HOST:PORT of the cluster's GCS, such as ray-head:6379, found {address}. Submit the "
            "command to the cluster with `ray job submit -- overnight run JOB.yaml`, or run it on a node of the "
            "cluster with HOST:6379."
        )


def start_local_ray(**arguments: Any) -> Any:
    """Start Ray on this machine, for this process and its children. Arguments and result are those of `ray.init`.

    Ray gives itself 30 s, which a busy machine exceeds. Then a second start succeeds, with all files in memory.
    """
    import ray

    from overnight.tasks.resources.ray_internals import on_loopback

    if "RAY_AUTH_MODE" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN", _auth_token())  # otherwise Ray writes one to HOME
    if "_temp_dir" not in arguments:
        arguments["_temp_dir"] = session_folder()
    start = functools.partial(ray.init, "local", **arguments)  # None would join the newest cluster of this machine
    with on_loopback():
        try:
            return start()
        except Exception as error:
            if START_TIMEOUT not in str(error):
                raise
            logger.warning("Ray did not start within 30 s, because the machine is busy. It is started once more.")
            _end_processes_of(arguments["_temp_dir"])
            return start()


def _end_processes_of(folder: str) -> None:
    """End the children of this process that name Ray's folder: `ray.shutdown` ends only a Ray that started."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # the child has ended
            if any(folder in argument for argument in child.cmdline()):
                child.kill()
                child.wait()


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
    import ray

    from overnight.tasks.resources.ray_internals import is_started_here

    return LocalRay(ray.get_runtime_context().gcs_address if is_started_here() else "")


class LocalRay:
    """The GCS at `address`, and how often it refused a connection in a row. An empty address is never checked.

    Ray 2.60 waits a minute for its GCS (the process that knows nodes and actors), then ends the driver without a word.
    """

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


@contextlib.contextmanager
def fork_server_for_local_ray() -> Iterator[None]:
    """Run a fork server for the local Ray that this process starts, and let it import what every worker needs."""
    with fork_server.for_local_ray():
        fork_server.preload(WORKER_IMPORTS)
        yield


def begin_imports(job: "Job") -> None:
    """Start to import what the first rows of `job` need, in a Ray process, while inputs are listed. Do not wait.

    If a fork server exists, it imports what reads rows and runs models, and the Ray process what writes.
    """
    import ray

    modules = first_imports(job)
    if fork_server.is_there():
        fork_server.preload(modules)
        modules = [WRITER_IMPORTS]
    ray.remote(num_cpus=0, max_retries=0)(import_all).remote(modules)


def first_imports(job: "Job") -> list[str]:
    """Return the modules that read the first rows of `job`: S3's client, half a second of CPU, only if it names S3."""
    if "s3://" in job.model_dump_json():
        return [*WORKER_IMPORTS, S3_IMPORTS]
    return [*WORKER_IMPORTS]


def import_all(modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)
