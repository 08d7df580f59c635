"""A Ray that `lean` started, beside one as Ray starts it."""

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CODE = """
    import contextlib
    import psutil
    import ray
    from overnight.flows.runs.minimal_ray import lean

    def services():
        below = psutil.Process().children(recursive=True)
        return " ".join(part for process in below for part in process.cmdline())

    with lean() if {is_lean} else contextlib.nullcontext():
        ray.init("local", include_dashboard=False, log_to_driver=False, num_cpus=1, _temp_dir={folder!r})
    assert ray.get(ray.remote(lambda: 2 + 3).remote()) == 5
    assert ray.cluster_resources()["CPU"] == 1
    print(services())
    from ray._private.node import Node
    print(Node.__name__)
    ray.shutdown()
"""


def services(is_lean: bool) -> tuple[str, str]:
    """The command lines of what Ray starts, and the class of a node afterwards."""
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # short, for the paths of sockets
        command = [sys.executable, "-c", textwrap.dedent(CODE).format(folder=folder, is_lean=is_lean)]
        done = subprocess.run(
            command, cwd=ROOT, env=inherited, stdout=subprocess.PIPE, text=True, check=True, timeout=120
        )
    *_, commands, node = done.stdout.splitlines()
    return commands, node


@pytest.mark.slow
def test_what_nobody_asks_is_not_started() -> None:
    as_ray_does, _ = services(is_lean=False)
    ours, node = services(is_lean=True)
    for name in ("gcs_server", "raylet"):
        assert name in ours
    for name in ("dashboard/dashboard.py", "autoscaler/_private/monitor.py", "_private/log_monitor.py"):
        assert name in as_ray_does
        assert name not in ours
    assert node == "Node"
