"""A Slurm cluster of one node on this machine, where Debian's packages are installed."""

import contextlib
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.object_stores import free_port, served

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "unshare")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmUser=root
AuthInfo=socket={folder}/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
SelectType=select/linear
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus}
PartitionName=all Nodes=ALL Default=YES
"""


@contextlib.contextmanager
def slurm_cluster(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment that Slurm's commands need. The cluster makes `folder`, and writes only there.

    The node has its own process ids. So `ray stop`, with which a job ends, finds no Ray of this machine, and all that
    the node started ends with it.
    """
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        pytest.skip(f"needs {', '.join(missing)}: apt-get install slurmctld slurmd slurm-client munge")
    for each in (folder, folder / "state", folder / "spool"):
        each.mkdir(mode=0o755)
    key, configuration, host = folder / "key", folder / "slurm.conf", socket.gethostname()
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    port, node_port = free_port(), free_port()
    values = {"host": host, "port": port, "node_port": node_port, "folder": folder, "cpus": os.cpu_count()}
    configuration.write_text(CONFIGURATION.format(**values))
    files = [f"--{name}-file={folder}/{name}" for name in ("key", "pid", "seed", "log")]
    own_ids = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    with contextlib.ExitStack() as stack:
        for command, where in (
            (["munged", "--foreground", "--force", f"--socket={folder}/socket", *files], folder / "socket"),
            (["slurmctld", "-D", "-f", str(configuration)], port),
            ([*own_ids, "slurmd", "-D", "-N", host, "-f", str(configuration)], node_port),
        ):
            stack.enter_context(served(command, where))
        yield {"SLURM_CONF": str(configuration)}
