"""A Ray cluster whose nodes are processes of this machine."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

# The processes that start one after another on a busy or limited node may take longer than Ray's 30 s.
SLOW_START = {"RAY_raylet_start_wait_time_s": "240"}
HEAD = "127.0.0.10"  # Ray would put the machine's address in the place of 127.0.0.1
WAIT = """
import ray, sys, time

ray.init(sys.argv[1], logging_level="ERROR", log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[2]):
    time.sleep(0.5)
"""


@contextmanager
def cluster(
    folder: Path,
    count: int,
    options: list[str],
    before: Callable[[], AbstractContextManager[list[str]]] = lambda: nullcontext([]),
) -> Iterator[str]:
    """Yield the address of a head without CPUs and of `count` nodes, each at another loopback address.

    Args:
        folder: For Ray's files and for `ray.log`, the output of all nodes.
        options: Of `ray start` for each node.
        before: Yields the beginning of a node's command.
    """
    environment = {**os.environ, **SLOW_START, "RAY_AUTH_MODE": "disabled"}
    port = 20_000 + os.getpid() % 10_000
    address = f"{HEAD}:{port}"
    common = ["--object-store-memory=300000000", "--block"]
    head = ["--head", f"--port={port}", f"--node-ip-address={HEAD}", "--num-cpus=0", "--num-gpus=0"]
    with ExitStack() as ends, open(folder / "ray.log", "a") as log:

        def start(*arguments: str) -> None:
            command = [*arguments, *common]
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            ends.callback(process.wait)
            ends.callback(process.terminate)

        ray = [str(Path(sys.executable).with_name("ray")), "start"]
        start(*ray, *head, "--include-dashboard=false", f"--temp-dir={folder}/ray")
        _wait_for(address, 1, environment)
        for number in range(2, count + 2):
            limits = ends.enter_context(before())
            start(*limits, *ray, f"--address={address}", f"--node-ip-address=127.0.0.{number}", *options)
            _wait_for(address, number, environment)  # nodes that start together may take the same socket, and one dies
        yield address


def _wait_for(address: str, nodes: int, environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", WAIT, address, str(nodes)]
    subprocess.run(command, env=environment, timeout=300, check=True)
