"""The Slurm script, run by bash with programs in the place of Slurm's and of `ray`.

`ray symmetric-run` itself is not run: it ends with `ray stop`, which ends every Ray of this machine. Its arguments are
read by Ray's own parsers.
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
    "print(json.dumps([sys.argv[1:], dict(os.environ), os.stat(os.environ['RAY_TMPDIR']).st_mode]))",
}


@pytest.mark.parametrize("local_disk", [True, False])
def test_the_command_runs_on_a_ray_of_all_nodes_whose_head_is_the_first(
    local_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = str(tmp_path) if local_disk else ""
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "RAY_", "SLURM_"))}
    environment = inherited | SLURM | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment |= {"SLURM_TMPDIR": temporary} if temporary else {}
    command = ["bash", str(SCRIPT), "my_job.yaml", "--partition", "2026-11-19"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    (name, *arguments), variables, mode = json.loads(done.stdout)
    assert name == "symmetric-run"
    end = arguments.index("--")
    options = arguments[:end]
    cluster = symmetric_run.make_context(name, list(options), resilient_parsing=True).params
    assert (cluster["address"], cluster["min_nodes"]) == ("gpu07:21042", 2)
    node = start.make_context("start", ["--head", *curate_and_validate_ray_start_args(list(options))]).params
    assert (node["num_cpus"], node["num_gpus"], node["disable_usage_stats"]) == (16, 4, True)
    program, address, overnight, called, *given = arguments[end + 1 :]
    assert (program, address, overnight) == ("env", "RAY_ADDRESS=gpu07:21042", "overnight")
    monkeypatch.chdir(tmp_path)
    Path("my_job.yaml").touch()
    assert main.commands[called].make_context(called, given).params["partition"] == "2026-11-19"
    folder = Path(variables["RAY_TMPDIR"])
    assert re.fullmatch(f"{temporary or '/tmp'}/overnight-[A-Za-z0-9]{{8}}", str(folder))
    assert variables["PREFECT_HOME"] == f"{folder}/prefect"  # the server's database is on a local disk
    assert (stat.S_IMODE(mode), folder.exists()) == (0o700, False)
    assert (variables["RAY_AUTH_MODE"], len(variables["RAY_AUTH_TOKEN"])) == ("token", 64)


def test_nodes_are_exclusive_because_the_end_stops_every_ray_on_them() -> None:
    assert "#SBATCH --exclusive" in SCRIPT.read_text().splitlines()
