"""What is long by nature: `make nightly` runs it. CONTRIBUTING.md lists its parts."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7200)]
ROOT = Path(__file__).parents[2]


def run_python(*arguments: str) -> str:
    """Run Python in the checkout, and return what it printed. Fail with the end of that where it fails."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def test_a_backfill_of_365_partitions_that_is_killed_half_way_publishes_each_once() -> None:
    said = run_python("benchmarks/backfill.py", "--partitions", "365")
    assert "published in the end  365, published twice 0, rows as in the plain loop" in said


def test_the_compose_file_holds_in_containers() -> None:
    if not (shutil.which("docker") or shutil.which("podman-compose")):
        pytest.skip("needs Docker, or Podman with podman-compose, and COMPOSE in the environment")
    run_python("deployments/docker/try.py")
