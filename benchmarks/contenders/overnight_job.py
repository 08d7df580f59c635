"""Writes a job file and becomes `overnight run JOB --json`, which exits 2 where it does not know a setting."""

import os
import sys
from pathlib import Path

import yaml


def run(out: Path, job: dict) -> None:
    job["sink"] = {"kind": "parquet", "path": str(out)}
    path = out.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(job))
    command = str(Path(sys.executable).with_name("overnight"))
    os.execv(command, [command, "run", str(path), "--json"])
