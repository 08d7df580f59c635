"""Ray clusters of `ray start`, whose nodes are processes of this machine. No fixtures."""

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Sequence

from tests.chaos.ceph_frozen import free_ports
from tests.chaos.runs import MARK, Process, end, wait_for
from tests.conftest import WORKER_PATH

SLOW_START = {"RAY_raylet_start_wait_time_s": "120"}  # on a busy machine
RAY_START = [sys.executable, "-m", "ray.scripts.scripts", "start"]
# A node's own /dev/shm and folders of Ray, or its own list of processes: a driver joins the Ray that it finds there.
OWN_FILES = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs "$0" && exec "$@"',
]
OWN_PROCESSES = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
HEAD = "127.0.0.10"  # with Redis, Ray puts another address of the machine in the place of 127.0.0.1
MAY_UNSHARE = subprocess.run([*OWN_PROCESSES, "true"], capture_output=True, check=False).returncode == 0
WAIT = """
import sys
import time
import ray

ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
while sum(node["Alive"] for node in ray.nodes()) != int(sys.argv[2]):
    time.sleep(0.2)
"""


class Nodes:
    """A head without CPUs, and nodes that join it, each at another loopback address.

    The head has its own list of processes: `ray start --head` refuses to start beside a process that names its address.
    """

    def __init__(self, folder: str, **environment: str) -> None:
        self.folder = folder
        self._environment = environment
        port, client_port = free_ports(2)
        self.address = f"{HEAD}:{port}"
        self._head_options = [
            "--head", f"--port={port}", f"--temp-dir={folder}", f"--ray-client-server-port={client_port}",
            "--num-cpus=0", "--include-dashboard=false", f"--node-ip-address={HEAD}",
        ]  # fmt: skip
        self._others: list[Process] = []
        self.start_head()

    def start_head(self) -> None:
        """Start the head, and wait until it answers."""
        self._head = self._start(self._head_options, OWN_PROCESSES)
        wait_for("the head", self._answers)

    def kill_head(self) -> None:
        end(self._head)

    def add(self, *options: str, before: Sequence[str] = ()) -> None:
        """Start a node of two CPUs at the next address. `before` stands before its command."""
        address = f"127.0.0.{len(self._others) + 2}"
        joining = [f"--address={self.address}", f"--node-ip-address={address}", "--num-cpus=2"]
        self._others.append(self._start([*joining, *options], before))

    def wait_for(self, count: int) -> None:
        """Wait until so many nodes are alive, the head among them."""
        subprocess.run([sys.executable, "-c", WAIT, self.address, str(count)], check=True, timeout=300)

    def kill_newest(self) -> None:
        end(self._others.pop())

    def end(self) -> None:
        while self._others:
            self.kill_newest()
        self.kill_head()

    def _answers(self) -> bool:
        host, _, port = self.address.partition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def _start(self, options: Sequence[str], before: Sequence[str] = ()) -> Process:
        mark = uuid.uuid4().hex
        process = Process(
            [*before, *RAY_START, "--block", *options, "--object-store-memory=200000000"],
            env={**os.environ, **SLOW_START, **self._environment, "PYTHONPATH": str(WORKER_PATH), MARK: mark},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        process.mark = mark
        return process
