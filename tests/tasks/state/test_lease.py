"""One run of a partition at a time, on a disk and on S3."""

import json
import socket
import subprocess
import sys
import threading
import uuid
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
    with lease.held(ledger, "first") as first:
        lease.check(ledger, first)
    with lease.held(ledger, "second") as second:
        assert second > first
        with pytest.raises(lease.LeaseLost):
            lease.check(ledger, first)


def test_a_run_that_renews_its_lease_keeps_others_out(ledger: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEWAL_SECONDS", 0.5)
    with (
        lease.held(ledger, "busy one"),
        pytest.raises(lease.PartitionBusy, match="busy one"),
        lease.held(ledger, "other"),
    ):
        pytest.fail("two runs hold one partition")


def test_of_many_that_try_at_once_one_succeeds(ledger: Location) -> None:
    results: list[str] = []
    start = threading.Barrier(6)

    def create() -> None:
        start.wait()
        try:
            (ledger / "lease" / "00000001").create(str(threading.get_ident()).encode())
            results.append("made")
        except FileExistsError:
            results.append("refused")

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["made"] + ["refused"] * 5


def test_the_lease_of_a_process_that_is_gone_is_taken_at_once(ledger: Location) -> None:
    code = "import os, sys, overnight.tasks.state.lease as l, overnight.tasks.storage.location as s\n"
    code += "lease = l.held(s.Location(sys.argv[1]), 'dead', 'run 1')\n"  # kept, else it is given back
    code += "lease.__enter__()\nos._exit(0)"
    subprocess.run([sys.executable, "-c", code, ledger.template], check=True, timeout=60)
    buried: list[str] = []
    with lease.held(ledger, "heir", "run 2", buried.append) as token:
        assert token == 2
    assert buried == ["run 1"]
    with lease.held(ledger, "next", "run 3", buried.append):
        assert buried == ["run 1"], "who gave the lease back did not die"


def test_a_lease_elsewhere_that_nobody_renews_expires(ledger: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "EXPIRY_SECONDS", 2.0)
    stale = {"owner": "far", "released": False, "renewed": 1, "host": f"not-{socket.gethostname()}", "pid": 1}
    (ledger / "lease" / "00000004").create(json.dumps(stale | {"started": "1"}).encode())
    with lease.held(ledger, "heir") as token:
        assert token == 5
