"""Jobs for tests: a job file over JSON Lines, with what a test says otherwise, and inputs for its days."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from overnight.flows.job.model import Job

DAILY = {"cron": "0 2 * * *"}


def job(folder: Path, **sections: Any) -> dict[str, Any]:
    """The mapping of a job with days, which reads and writes below `folder`. A section that is None is left out."""
    mapping = {
        "name": "small",
        "source": {"kind": "jsonl", "path": f"{folder}/in/{{partition}}"},
        "sink": {"kind": "parquet", "path": f"{folder}/out"},
        **sections,
    }
    return {name: section for name, section in mapping.items() if section is not None}


def load(folder: Path, **sections: Any) -> Job:
    """The job of `job`, as a flow has it."""
    return Job.model_validate(job(folder, **sections))


def write_job(path: Path, mapping: Mapping[str, Any] | None = None, **sections: Any) -> Path:
    """Write a job file, by default that of `job` in the file's folder, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(mapping) if mapping else job(path.parent, **sections)))
    return path


def write_days(folder: Path, days: Iterable[str], rows: int = 2) -> None:
    """Write `rows` rows of JSON Lines for each of these days."""
    for day in days:
        (folder / "in" / day).mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"id": number}) for number in range(rows)]
        (folder / "in" / day / "a.jsonl").write_text("\n".join(lines) + "\n")
