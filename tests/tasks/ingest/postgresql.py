"""A PostgreSQL server of a test's own, on a socket in its folder; it ends with the test session."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def programs() -> Path | None:
    """Where initdb and postgres are, if they are installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """The connection string of a server that is ready."""
    bin_folder = programs()
    assert bin_folder, "there is no PostgreSQL here"
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        as_user = ()
        if os.geteuid() == 0:  # it does not run as root
            user = pwd.getpwnam("postgres" if "postgres" in (p.pw_name for p in pwd.getpwall()) else "nobody")
            os.chown(folder, user.pw_uid, user.pw_gid)
            as_user = ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
        data = f"{folder}/data"
        command = [
            *as_user,
            str(bin_folder / "initdb"),
            "-D",
            data,
            "-U",
            "test",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        control = [*as_user, str(bin_folder / "pg_ctl"), "-D", data, "-w", "-l", f"{folder}/log"]
        options = f"-c listen_addresses= -c fsync=off -k {folder}"
        subprocess.run([*control, "-o", options, "start"], check=True, stdout=subprocess.DEVNULL, cwd=folder)
        try:
            yield f"host={folder} user=test dbname=postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL, cwd=folder)
