"""The unit that keeps a worker alive: systemd accepts each of its settings."""

import shutil
import subprocess
from pathlib import Path

import pytest

from overnight.flows.deploy.prefect_yaml import DEFAULTS, PrefectFile

UNIT = Path(__file__).parents[2] / "deployments/systemd/overnight-worker.service"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    # The program and the user of the unit are not on this machine.
    text = UNIT.read_text().replace("/srv/overnight/.venv/bin/prefect", "/bin/true").replace("User=overnight\n", "")
    unit.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_worker_takes_runs_from_the_pool_that_deploy_makes() -> None:
    [pool] = PrefectFile(DEFAULTS).work_pools
    assert f"prefect worker start --pool {pool.name} --type {pool.type}\n" in UNIT.read_text()


def test_the_worker_shares_no_temporary_folder_and_gets_no_rights() -> None:
    assert {"PrivateTmp=true", "NoNewPrivileges=true"} <= set(UNIT.read_text().splitlines())
