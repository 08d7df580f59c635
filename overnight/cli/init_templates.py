"""`overnight init`: write a job file, and a skeleton of your own predictor, from a few answers. No file is overwritten.

The job file is valid, or no file is written. Its paths are absolute, so that it can be deployed as it is.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from overnight.cli.init_chains import CHAINS
from overnight.cli.init_choices import (
    Answers,
    column_read,
    is_table,
    offered_models,
    reads_images_of_a_table,
    steps,
    task_choices,
)
from overnight.flows.job.loading import is_relative, load_job
from overnight.flows.job.yaml_loader import yaml_line
from overnight.tasks.errors import JobError
from overnight.tasks.storage.location import expand

MODULE = "my_models"
# For each column: its variable in the skeleton, its description, and an example of a result and its expression.
EXAMPLES = {
    "image": ("images", "arrays of uint8, N x height x width x 3", "brightness", "images.mean(axis=(1, 2, 3))"),
    "audio": ("sounds", "N arrays of float32, 1 x samples", "loudness", "np.array([abs(one).max() for one in sounds])"),
}
EXAMPLE = ("values", "an array of N values", "length", "np.array([len(str(value)) for value in values])")


def create(answers: Answers) -> list[Path]:
    """Write the job file and, for your own model, its skeleton. Return the paths of both.

    Raise `JobError` if a file exists or the job is not valid.
    """
    job_path = answers.folder / f"{answers.name}.yaml"
    if answers.cron:
        expand(answers.path)  # raises JobError for a variable that is not set
    files = {job_path: _job_file(answers)}
    if answers.work == "python":
        files[answers.folder / f"{_module(answers)}.py"] = skeleton(answers)
    for path in files:
        if path.exists():
            raise JobError(f"{path}: exists already, and init overwrites no file. Choose another --name or folder.")
    choices = task_choices(answers.source, answers.found)
    if answers.work not in choices:
        raise JobError(f"--work {answers.work}: expected one of {', '.join(choices)} for {answers.source}.")
    if not is_table(answers.source) and answers.text_column not in ("", column_read(answers)):
        raise JobError(
            f"--text-column {answers.text_column}: for {answers.source} the work reads the column "
            f"{column_read(answers)}. Leave this option out."
        )
    answers.folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    try:
        for path, content in files.items():
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(content)
        load_job(job_path)
    except BaseException:
        for path in written:
            path.unlink()
        raise
    return list(files)


def _module(answers: Answers) -> str:
    """Return the name of the skeleton's module. If the folder has `my_models.py`, the name also has the job's name."""
    is_taken = (answers.folder / f"{MODULE}.py").exists()
    return f"{MODULE}_{answers.name.replace('-', '_')}" if is_taken else MODULE


def _job_file(answers: Answers) -> str:
    path, sink = answers.path, (answers.folder / "predictions" / answers.name).absolute()
    if is_relative(path):  # a deployment refuses relative paths
        path = os.path.abspath(path) + ("/" if path.endswith("/") else "")
    source = _source(answers, path)
    comments = list(answers.found.columns.comments)
    if "label_from" in source:
        comments.append(
            "label_from: the name of a file's folder becomes its label; remove it unless folders are labels."
        )
    lines = [
        f"# Run it in this folder: overnight run {answers.name}.yaml",
        f"name: {yaml_line(answers.name)}",
        *(f"# {_one_line(comment)}" for comment in comments),
        f"source: {yaml_line(source)}",
    ]
    if prepared := steps(answers):
        lines += ["preprocess:", *(f"  - {step}" for step in prepared)]
    if answers.work != "none":
        lines += ["inference:", *(f"  - {yaml_line(entry)}" for entry in _inference(answers))]
    lines += [*_checks(answers), f"sink: {yaml_line({'kind': 'parquet', 'path': os.path.normpath(sink)})}"]
    return "\n".join([*lines, *_schedule(answers)]) + "\n"


def _source(answers: Answers, path: str) -> dict[str, Any]:
    columns = answers.found.columns
    if not columns.image_files and reads_images_of_a_table(answers):
        keep = [name for name in columns.names if name != columns.image_uris]
        uris = {"content": "image", "uri_column": columns.image_uris, **({"keep": keep} if keep else {})}
        return {"kind": "uris", "path": path, **uris}
    label = {"label_from": "parent"} if answers.source == "images" and answers.found.has_folders else {}
    return {"kind": answers.source, "path": path, **columns.settings, **label}


def _checks(answers: Answers) -> list[str]:
    rows = answers.found.rows
    least = max(rows // 2, 1)
    reason = f"half of the {rows:,} that are there now" if rows > 1 else "an empty result is refused"
    return [
        "checks:",
        f"  min_rows: {least} # {reason}",
        "  max_quarantined: 0.01 # a fraction of the rows read; above it, nothing is published",
    ]


def _schedule(answers: Answers) -> list[str]:
    is_dated = "{partition}" in answers.path
    if not is_dated and not answers.cron:
        return []
    when = f"cron: {json.dumps(answers.cron or '0 2 * * *')}, timezone: {yaml_line(answers.timezone)}"
    about = "each run takes the day before" if is_dated else "each run takes all inputs, if they changed"
    return [f"schedule: {{{when}{', offset_days: -1' if is_dated else ''}}} # {about}"]


def _one_line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _inference(answers: Answers) -> list[dict[str, Any]]:
    column = column_read(answers)
    if answers.work == "python":
        return [{"kind": "python", "target": f"{_module(answers)}:Model", "kwargs": {"column": column}}]
    if answers.work in CHAINS:
        return CHAINS[answers.work].entries(answers.model)
    return [{"kind": answers.work, "model": answers.model, **offered_models()[answers.work].settings(column)}]


def skeleton(answers: Answers) -> str:
    """Return the source text of the user's own model. It runs as it is, and the user replaces its example."""
    column = column_read(answers)
    variable, about, result, value = (
        EXAMPLES.get(column, EXAMPLE) if not is_table(answers.source) or column == "image" else EXAMPLE
    )
    return f'''"""A model of your own. Each worker loads it once and calls it for each batch. Replace the example."""

import numpy as np


class Model:
    def __init__(self, column: str = "{column}") -> None:
        """Load the weights here. Each worker calls this once, with the `kwargs` of the job file."""
        self.column = column

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return new columns for a batch: arrays of N values, from the arrays of N rows in `batch`."""
        {variable} = batch[self.column]  # {about}
        return {{"{result}": {value}}}
'''


def next_commands(answers: Answers, files: Sequence[Path]) -> list[str]:
    """Return the commands that the user can type next, for the `files` that `create` wrote, the job file first."""
    here = answers.folder.resolve() == Path.cwd()
    job = files[0].name
    deploy = [f"overnight deploy {job}"] if answers.cron else []
    run = [f"overnight preview {job}", f"overnight run {job}"]
    return [*([] if here else [f"cd {answers.folder}"]), *run, *deploy]
