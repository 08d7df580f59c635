"""A PostgreSQL server of the tests' own, where its programs are installed."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.object_stores import free_port

USER, PASSWORD = "tester", "p@ss/w:rd%"


@contextlib.contextmanager
def postgres_server() -> Iterator[str]:
    """`127.0.0.1:port` of a server that keeps nothing and does not run as root.

    PGHOST, PGPORT, PGUSER and PGPASSWORD are set.
    """
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        pytest.skip("needs PostgreSQL below /usr/lib/postgresql")
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
    (folder / "password").write_text(PASSWORD)
    account = "nobody" if os.geteuid() == 0 else None
    if account:
        for path in (folder, folder / "password"):
            shutil.chown(path, account)
    made = [
        *(programs[-1] / "initdb", "-D", folder / "data", "-U", USER, "--pwfile", folder / "password"),
        *("-A", "scram-sha-256", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync"),
    ]
    subprocess.run(made, user=account, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    start = [
        *(programs[-1] / "pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log", "start"),
        *("-o", f"-h 127.0.0.1 -p {port} -k {folder} -F"),
    ]
    subprocess.run(start, user=account, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    os.environ.update(PGUSER=USER, PGPASSWORD=PASSWORD, PGHOST="127.0.0.1", PGPORT=str(port))
    try:
        yield f"127.0.0.1:{port}"
    finally:
        stop = [programs[-1] / "pg_ctl", "-D", folder / "data", "-m", "immediate", "stop"]
        subprocess.run(stop, user=account, cwd=folder, check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)
