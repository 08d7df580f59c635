"""What is said of wrong job files, as one table: `python -m tests.flows.job.messages` makes messages.txt again.

Each line of messages.txt that begins with `>` is a wrong job; the lines below it are the message. The word after `>`
says how to read it: `images` and `rows` add YAML to a small job of such a source, `set` overrides a setting of a whole
job, `small` one of a small job, and `file` is a whole file. `jobs` has the source of each of several jobs, beside its
sink if that is another one; the first job is loaded. `\\n` is a new line.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import yaml

from overnight.flows.job.loading import load_job
from overnight.tasks.errors import JobError
from tests.flows.job.jobs import SMALL, WHOLE
from tests.jobs import write_job

TABLE = Path(__file__).with_name("messages.txt")
CODE = "class Model:\n    def __call__(self, batch): return batch\n\ndef step(batch): return batch\n\nmade = step(1)\n"


def message(case: str, folder: Path) -> str:
    """The message of a case, such as `images checks: 3`, for a job file in `folder`. No message: the job is valid."""
    how, _, text = case.partition(" ")
    text = text.replace("\\n", "\n")
    small = SMALL if how == "images" else SMALL.replace("images", "jsonl")
    path = folder / "job.yaml"
    path.write_text({"set": WHOLE, "small": SMALL, "file": text}.get(how, small + text))
    (folder / "leaves.py").write_text(CODE)
    if how == "jobs":
        path = write_jobs(folder, yaml.safe_load(text))
    try:
        load_job(path, [text] if how in ("set", "small") else [])
    except JobError as error:
        return str(error).replace(str(folder), "FOLDER")
    return "(valid)"


def write_jobs(folder: Path, sources: dict[str, Any]) -> Path:
    """Write the jobs of a case that begins with `jobs`, and return the first one."""
    for file in folder.glob("*.yaml"):
        file.unlink()
    for name, source in sources.items():
        sink = source.pop("sink", {"kind": "parquet", "path": f"out/{name}"})
        write_job(folder / f"{name}.yaml", {"name": name, "source": source, "sink": sink})
    return folder / f"{next(iter(sources))}.yaml"


def table(cases: list[str]) -> str:
    """The text of messages.txt for these cases."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            blocks = [f"> {case}\n{message(case, Path(folder).resolve())}\n" for case in cases]
        finally:
            os.chdir(here)
    return "\n".join(blocks)


def cases() -> list[str]:
    return [line[2:] for line in TABLE.read_text().splitlines() if line.startswith("> ")]


if __name__ == "__main__":
    TABLE.write_text(table(cases()))
