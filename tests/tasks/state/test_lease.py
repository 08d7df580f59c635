"""One run of a partition at a time, on a disk and on S3."""

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.state import lease
from overnight.tasks.storage.location import Location


@pytest.fixture(params=["disk", "s3"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "disk":
        return Location(str(tmp_path / "ledger"))
    client: Any = request.getfixturevalue("s3")
    bucket = f"lease-{uuid.uuid4().hex[:8]}"
    client.create_bucket(Bucket=bucket)
    return Location(f"s3://{bucket}/ledger")


def test_a_lease_given_back_is_taken_at_once_with_a_higher_token(ledger: Location) -> None:
    assert (lease.holder(ledger), lease.left_by(ledger)) == ("", None)
    with lease.held(ledger, "first") as first:
        lease.check(ledger, first)
        assert lease.holder(ledger) == f"first on {socket.gethostname()}"
    assert (lease.holder(ledger), lease.left_by(ledger)) == ("", None)
    with lease.held(ledger, "second") as second:
        assert second == first + 1 == 2
        with pytest.raises(lease.LeaseLost):
            lease.check(ledger, first)


def test_a_run_that_renews_its_lease_keeps_others_out(ledger: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.2)
    monkeypatch.setattr(lease, "WATCH_SECONDS", 0.3)
    with (
        lease.held(ledger, "busy one"),
        pytest.raises(lease.PartitionBusy, match="busy one"),
        lease.held(ledger, "other"),
    ):
        pytest.fail("two runs hold one partition")


def test_of_many_that_try_at_once_one_succeeds(ledger: Location) -> None:
    def create(number: int) -> bool:
        try:
            (ledger / "lease" / "00000001").create(str(number).encode())
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(create, range(6))) == [False] * 5 + [True]


def test_the_lease_of_a_process_that_is_gone_is_taken_at_once(ledger: Location) -> None:
    code = "import os, sys, overnight.tasks.state.lease as l, overnight.tasks.storage.location as s\n"
    code += "lease = l.held(s.Location(sys.argv[1]), 'dead', 'run 1')\n"  # kept, else it is given back
    code += "lease.__enter__()\nos._exit(0)"
    subprocess.run([sys.executable, "-c", code, ledger.template], check=True, timeout=60)
    left = lease.left_by(ledger)
    assert left
    assert (left.token, left.owner, left.flow_run, left.is_alive) == (1, "dead", "run 1", False)
    buried: list[str] = []
    with lease.held(ledger, "heir", "run 2", buried.append) as token:
        assert token == 2
    with lease.held(ledger, "next", "run 3", buried.append):
        assert buried == ["run 1"], "who gave the lease back did not die"


def elsewhere(renewed: int) -> bytes:
    found = {"owner": "far", "released": False, "renewed": renewed, "pid": 1, "started": "1"}
    return json.dumps(found | {"host": f"not-{socket.gethostname()}"}).encode()


def test_a_lease_elsewhere_that_nobody_renews_expires(ledger: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "EXPIRY_SECONDS", 0.4)
    monkeypatch.setattr(lease, "WATCH_SECONDS", 0.2)
    (ledger / "lease" / "00000004").create(elsewhere(1))
    with lease.held(ledger, "heir") as token:
        assert token == 5


@pytest.mark.parametrize(("silent", "is_alive"), [(50, True), (61, False)])
def test_a_holder_elsewhere_counts_as_alive_until_it_is_silent_for_a_minute(silent: int, is_alive: bool) -> None:
    moment = time.time_ns() - silent * 10**9
    found = lease.read_holder(7, elsewhere(moment))
    assert found
    assert (found.token, found.owner, found.flow_run, found.is_alive) == (7, "far", "", is_alive)
    assert found.renewed_at == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment // 10**9))


def test_a_process_of_the_same_number_that_started_later_is_not_the_holder() -> None:
    process = {"host": socket.gethostname(), "pid": os.getpid(), "started": "1"}
    content = {"owner": "gone", "released": False, "renewed": time.time_ns(), **process}
    found = lease.read_holder(7, json.dumps(content).encode())
    assert found
    assert not found.is_alive
