"""A real Ceph object gateway whose only disk daemon is frozen for half a minute while a job reads and publishes there.

    apt-get install --no-install-recommends ceph-mon ceph-osd radosgw    # Debian's, 16.2

One monitor, one disk in a file and one gateway, all on 127.0.0.1.
"""

import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.moments import Moments
from tests.chaos.runs import Start, finish, free_ports, traced_rows, wait_until
from tests.chaos.test_storage import (
    ROWS,
    TRIED_ROWS,
    Bucket,
    Server,
    assert_as_undisturbed,
    assert_nothing_is_left_behind,
    job_folder,
)

__all__ = ["job_folder"]  # a fixture here as well

pytestmark = [
    pytest.mark.nightly,  # few machines have Ceph, and it takes minutes to start
    pytest.mark.timeout(900),
    pytest.mark.skipif(not all(map(shutil.which, ("ceph-mon", "ceph-osd", "radosgw"))), reason="needs Ceph"),
]
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


class Ceph(Server):
    """A monitor, a disk and a gateway, started in this order."""

    def __init__(self, folder: Path) -> None:
        self._ports = free_ports(3)
        self._daemons: list[subprocess.Popen[str]] = []
        super().__init__(folder, self._ports[2])
        self.environment["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"  # else Ceph 16.2 refuses what is written

    def start(self) -> None:
        folder, disk = self._folder, str(uuid.uuid4())
        keyring, cluster = str(folder / "keyring"), str(uuid.uuid4())
        (folder / "ceph.conf").write_text(CONFIGURATION.format(fsid=cluster, folder=folder, ports=self._ports))
        for name in ("mon", "osd"):
            (folder / name).mkdir()
        addresses = f"[v2:127.0.0.1:{self._ports[0]},v1:127.0.0.1:{self._ports[1]}]"
        call("monmaptool", "--create", "--fsid", cluster, "--addv", "a", addresses, str(folder / "monmap"))
        may = ("--cap", "mon", "allow *", "--cap", "osd", "allow *")
        call("ceph-authtool", "--create-keyring", keyring, "--gen-key", "-n", "mon.", *may)
        for name in ("client.admin", "osd.0"):
            call("ceph-authtool", keyring, "--gen-key", "-n", name, *may)
        own = ("--conf", str(folder / "ceph.conf"))
        call("ceph-mon", *own, "--mkfs", "-i", "a", "--monmap", str(folder / "monmap"), "--keyring", keyring)
        self._daemon("ceph-mon", *own, "-i", "a")
        call("ceph", *own, "osd", "new", disk)
        call("ceph-osd", *own, "-i", "0", "--mkfs", "--osd-uuid", disk)
        self.disk = self._daemon("ceph-osd", *own, "-i", "0")
        gateway = self._daemon("radosgw", *own, "-n", "client.admin")
        keys = ("--access-key=test", "--secret=test")
        call("radosgw-admin", *own, "user", "create", "--uid=test", "--display-name=test", *keys)
        wait_until(self.answers, gateway)

    def _daemon(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        with (self._folder / f"{name}.out").open("wb") as output:
            self._daemons.append(subprocess.Popen([name, "-f", *arguments], stdout=output, stderr=output, text=True))
        return self._daemons[-1]

    def kill(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.kill()
            daemon.wait()


def call(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ceph]:
    store = Ceph(tmp_path_factory.mktemp("ceph"))
    try:
        store.start()
        yield store
    finally:
        store.kill()


def test_a_ceph_store_that_freezes_costs_only_time(ceph: Ceph, start: Start, tmp_path: Path, moments: Moments) -> None:
    bucket = Bucket(ceph, "bucket")
    bucket.fill()
    bucket.write_job(tmp_path)
    process = start(**ceph.environment)
    staged = moments.number(2, 6)
    wait_until(lambda: len(bucket.parts()) >= staged, process)
    ceph.disk.send_signal(signal.SIGSTOP)
    moments.record(f"the disk frozen for {FROZEN_SECONDS} s", staged)
    time.sleep(FROZEN_SECONDS)
    ceph.disk.send_signal(signal.SIGCONT)
    receipt = finish(process)
    assert_as_undisturbed(receipt, bucket.published)
    assert_nothing_is_left_behind(bucket, receipt)
    assert receipt["rows_resumed"] == 0  # in one attempt
    assert traced_rows(tmp_path) <= ROWS * 9 // 10 + TRIED_ROWS
