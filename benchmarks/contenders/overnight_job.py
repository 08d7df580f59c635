"""Write a job file, and become `overnight run JOB --json`, which exits with 2 for an unknown setting."""

import os
import sys
from pathlib import Path

import yaml


def run(out: Path, job: dict) -> None:
    job["sink"] = {"kind": "parquet", "path": str(out)}
    path = out.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(job))
    command = [sys.executable, "-c", "from overnight.cli.main import main; main(prog_name='overnight')"]
    os.execv(sys.executable, [*command, "run", str(path), "--json"])
