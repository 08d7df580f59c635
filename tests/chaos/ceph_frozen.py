"""A real Ceph object gateway whose only disk daemon is frozen for half a minute while a job reads and publishes there.

    apt-get install --no-install-recommends ceph-mon ceph-osd radosgw    # Debian's, 16.2
    python -m tests.chaos.ceph_frozen

Too heavy for every commit: one monitor, one disk in a file and one gateway, all on 127.0.0.1 and gone afterwards. The
result is compared row for row, and printed with what the freeze cost.
"""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from overnight.flows.runs.local_server import prefect_server
from tests.chaos.moments import VARIABLE, Moments, seed
from tests.chaos.runs import finish, slow_model, started_runs, traced_rows, wait_until
from tests.chaos.test_storage import ROWS, Bucket, Server, assert_as_undisturbed, assert_nothing_is_left_behind

FROZEN_SECONDS = 30
CONFIGURATION = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{ports[0]},v1:127.0.0.1:{ports[1]}]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = {folder}/keyring
mon data = {folder}/mon
osd data = {folder}/osd
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
mon allow pool size one = true
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd crush chooseleaf type = 0
osd max object name len = 256
osd heartbeat grace = 120
mon osd report timeout = 900
bluestore block size = 4294967296
osd memory target = 939524096
rgw frontends = beast endpoint=127.0.0.1:{ports[2]}
"""


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


class Ceph(Server):
    """A monitor, a disk and a gateway, started in this order."""

    def __init__(self, folder: Path) -> None:
        self._ports = free_ports(3)
        self._daemons: list[subprocess.Popen[bytes]] = []
        super().__init__(folder, self._ports[2])

    def start(self) -> None:
        folder, fsid = self._folder, str(uuid.uuid4())
        (folder / "ceph.conf").write_text(CONFIGURATION.format(fsid=fsid, folder=folder, ports=self._ports))
        for name in ("mon", "osd"):
            (folder / name).mkdir()
        addresses = f"[v2:127.0.0.1:{self._ports[0]},v1:127.0.0.1:{self._ports[1]}]"
        self._call("monmaptool", "--create", "--fsid", fsid, "--addv", "a", addresses, str(folder / "monmap"))
        keyring, may = str(folder / "keyring"), ("--cap", "mon", "allow *", "--cap", "osd", "allow *")
        self._call("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", *may)
        for name in ("client.admin", "osd.0"):
            self._call("ceph-authtool", keyring, "--gen-key", "-n", name, *may)
        self._call("ceph-mon", "--mkfs", "-i", "a", "--monmap", str(folder / "monmap"), "--keyring", keyring)
        self._daemon("ceph-mon", "-i", "a")
        disk = str(uuid.uuid4())
        self._call("ceph", "osd", "new", disk)
        self._call("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
        self.disk = self._daemon("ceph-osd", "-i", "0")
        self._daemon("radosgw", "-n", "client.admin")
        user = ("user", "create", "--uid=test", "--display-name=test", "--access-key=test", "--secret=test")
        self._call("radosgw-admin", *user)
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._ports[2]), 1):
                return
            time.sleep(0.1)
        raise TimeoutError(f"the gateway did not start; see {folder}")

    def _command(self, name: str, *arguments: str) -> list[str]:
        return [name, "--conf", str(self._folder / "ceph.conf"), *arguments]

    def _call(self, name: str, *arguments: str) -> None:
        is_tool = name in ("monmaptool", "ceph-authtool")
        command = [name, *arguments] if is_tool else self._command(name, *arguments)
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")

    def _daemon(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = self._command(name, "-f", *arguments)
        output = (self._folder / f"{name}.out").open("wb")
        self._daemons.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT))
        return self._daemons[-1]

    def kill(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.kill()
            daemon.wait()


@contextlib.contextmanager
def ceph(folder: Path) -> Iterator[Ceph]:
    store = Ceph.__new__(Ceph)
    try:
        store.__init__(folder)  # type: ignore[misc]  # what it started ends here although it may not get to the end
        yield store
    finally:
        store.kill()


def main() -> None:
    print(f"{VARIABLE}={seed()}")
    moments = Moments("ceph")
    os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"  # else Ceph 16.2 refuses what is written
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ceph-")))
        os.environ["PREFECT_HOME"] = str(folder / "prefect")
        (folder / "run").mkdir()
        slow_model(folder / "run")
        (folder / "store").mkdir()
        store = stack.enter_context(ceph(folder / "store"))
        bucket = Bucket(store, "bucket")
        bucket.fill()
        url = stack.enter_context(prefect_server())
        start = stack.enter_context(started_runs(folder / "run", url))
        began = time.monotonic()
        bucket.write_job(folder / "run")
        process = start(**store.environment)
        staged = moments.number(2, 6)
        wait_until(lambda: sum(key.endswith(".part") for key in bucket.keys("out/_overnight/")) >= staged, process)
        store.disk.send_signal(signal.SIGSTOP)
        moments.record(f"the disk frozen for {FROZEN_SECONDS} s", staged)
        time.sleep(FROZEN_SECONDS)
        store.disk.send_signal(signal.SIGCONT)
        receipt = finish(process)
        assert_as_undisturbed(receipt, bucket.published)
        assert_nothing_is_left_behind(bucket, receipt)
        assert receipt["rows_resumed"] == 0
        repeated = traced_rows(folder / "run") - ROWS * 9 // 10
        print(
            f"published {receipt['rows_out']} of {receipt['rows_in']} rows in {len(receipt['files'])} files, "
            f"{time.monotonic() - began:.0f} s: none lost, none doubled, one attempt, {repeated} rows tried twice"
        )


if __name__ == "__main__":
    main()
