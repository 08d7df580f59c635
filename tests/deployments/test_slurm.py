"""The Slurm script, run by bash with programs in the place of Slurm's and of `ray`.

`ray symmetric-run` itself is not run: it ends with `ray stop`, which ends every Ray of this machine. Its arguments are
read by Ray's own parsers. tests/chaos/test_second_user.py has a real cluster.
"""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ray.scripts.scripts import start
from ray.scripts.symmetric_run import curate_and_validate_ray_start_args, symmetric_run

from overnight.cli.main import main

SCRIPT = Path(__file__).resolve().parents[2] / "deployments/slurm/overnight.sbatch"
SLURM = {
    "SLURM_JOB_ID": "4711042",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_CPUS_PER_TASK": "16",
    "SLURM_GPUS_ON_NODE": "4",
}
PROGRAMS = {
    "scontrol": '#!/bin/sh\n[ "$*" = "show hostnames gpu[07-08]" ] && printf "gpu07\\ngpu08\\n"',
    "srun": '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"',  # on the first node only
    "ray": f"#!{sys.executable} -IS\nimport json, os, sys\n"
    "print(json.dumps([sys.argv[1:], dict(os.environ), os.stat(os.environ['RAY_TMPDIR']).st_mode]), flush=True)\n"
    "command = sys.argv[sys.argv.index('--') + 1:]\n"
    "if 'NO_RAY' not in os.environ: os.execvp(command[0], command)",
    "overnight": f"#!{sys.executable} -IS\nimport json, os, sys\n"
    "print(json.dumps([os.environ['RAY_ADDRESS'], *sys.argv]))",
}


def submitted(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script for a partition of my_job.yaml, with the stand-ins in `folder`."""
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "RAY_", "SLURM_"))}
    environment = inherited | SLURM | {"PATH": f"{folder}:{os.environ['PATH']}"} | environment
    command = ["bash", str(SCRIPT), "my_job.yaml", "--partition", "2026-11-19"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("local_disk", [True, False])
def test_the_command_runs_on_a_ray_of_all_nodes_whose_head_is_the_first(
    local_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = str(tmp_path) if local_disk else ""
    done = submitted(tmp_path, **({"SLURM_TMPDIR": temporary} if temporary else {}))
    assert done.returncode == 0, done.stderr
    ((name, *arguments), variables, mode), (address, _, called, *given) = map(json.loads, done.stdout.splitlines())
    assert name == "symmetric-run"
    options = arguments[: arguments.index("--")]
    cluster = symmetric_run.make_context(name, list(options), resilient_parsing=True).params
    assert (cluster["address"], cluster["min_nodes"], address) == ("gpu07:21042", 2, "gpu07:21042")
    node = start.make_context("start", ["--head", *curate_and_validate_ray_start_args(list(options))]).params
    assert (node["num_cpus"], node["num_gpus"], node["disable_usage_stats"]) == (16, 4, True)
    monkeypatch.chdir(tmp_path)
    Path("my_job.yaml").touch()
    assert main.commands[called].make_context(called, given).params["partition"] == "2026-11-19"
    folder = Path(variables["RAY_TMPDIR"])
    assert re.fullmatch(f"{temporary or '/tmp'}/overnight-[A-Za-z0-9]{{8}}", str(folder))
    assert variables["PREFECT_HOME"] == f"{folder}/prefect"  # the server's database is on a local disk
    assert (stat.S_IMODE(mode), folder.exists()) == (0o700, False)
    assert (variables["RAY_AUTH_MODE"], len(variables["RAY_AUTH_TOKEN"])) == ("token", 64)


def test_a_job_whose_ray_does_not_start_fails(tmp_path: Path) -> None:
    done = submitted(tmp_path, NO_RAY="1", SLURM_TMPDIR=str(tmp_path))
    assert (done.returncode, list(tmp_path.glob("overnight-*"))) == (1, [])
    assert "expected Ray to start on gpu07, found that it did not" in done.stderr


def test_the_port_of_a_head_is_none_of_those_of_its_workers(tmp_path: Path) -> None:
    options = start.make_context("start", ["--head"]).params
    for job in ("1", "9999", "19999"):
        done = submitted(tmp_path, SLURM_JOB_ID=job, SLURM_TMPDIR=str(tmp_path))
        port = int(json.loads(done.stdout.splitlines()[-1])[0].rpartition(":")[2])
        assert options["max_worker_port"] < port < 32768  # which are ports of connections


def test_nodes_are_exclusive_because_the_end_stops_every_ray_on_them() -> None:
    assert "#SBATCH --exclusive" in SCRIPT.read_text().splitlines()
