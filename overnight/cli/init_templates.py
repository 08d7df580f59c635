"""`overnight init`: write a job file, and a skeleton of your own predictor, from a few answers. No file is overwritten.

The job file is valid, or no file is written. Its paths are absolute, so that it can be deployed as it is.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from overnight.cli.init_choices import (
    CHAINS,
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
LABELS = "label_from: the name of a file's folder becomes its label; remove it unless folders are labels."


def create(answers: Answers) -> list[Path]:
    """Write the job file and, for your own model, its skeleton. Return the paths of both.

    Raise `JobError` if a file exists or the job is not valid.
    """
    _check(answers)
    job_path = answers.folder / f"{answers.name}.yaml"
    files = {job_path: _job_file(answers)}
    if answers.work == "python":
        files[answers.folder / f"{_module(answers)}.py"] = skeleton(answers)
    answers.folder.mkdir(parents=True, exist_ok=True)
    own_files: list[Path] = []
    try:
        for path, content in files.items():
            with path.open("x", encoding="utf-8") as file:
                own_files.append(path)
                file.write(content)
        load_job(job_path)
    except BaseException as error:
        for path in own_files:
            path.unlink()
        if isinstance(error, FileExistsError):
            advice = "init overwrites no file. Choose another --name or folder."
            raise JobError(f"{error.filename}: exists already, and {advice}") from None
        raise
    return list(files)


def _check(answers: Answers) -> None:
    """Raise `JobError` for answers that do not fit each other."""
    if answers.cron:
        expand(answers.path)  # raises JobError for a variable that is not set
    choices = task_choices(answers.source, answers.found)
    if answers.work not in choices:
        raise JobError(f"--work {answers.work}: expected one of {', '.join(choices)} for {answers.source}.")
    column = column_read(answers)
    if not is_table(answers.source) and answers.text_column not in ("", column):
        raise JobError(
            f"--text-column {answers.text_column}: for {answers.source} the work reads the column {column}. Leave this "
            "option out."
        )


def _module(answers: Answers) -> str:
    """Return the name of the skeleton's module. If the folder has `my_models.py`, the name also has the job's name."""
    if (answers.folder / f"{MODULE}.py").exists():
        return f"{MODULE}_{answers.name.replace('-', '_')}"
    return MODULE


def _job_file(answers: Answers) -> str:
    source = _source(answers)
    lines = [f"# Run it in this folder: overnight run {answers.name}.yaml", f"name: {yaml_line(answers.name)}"]
    for comment in answers.found.columns.comments:
        lines.append(f"# {_one_line(comment)}")
    if "label_from" in source:
        lines.append(f"# {LABELS}")
    lines.append(f"source: {yaml_line(source)}")
    if entries := steps(answers):
        lines += ["preprocess:", *(f"  - {step}" for step in entries)]
    if models := _inference(answers):
        lines += ["inference:", *(f"  - {yaml_line(model)}" for model in models)]
    sink = os.path.abspath(answers.folder / "predictions" / answers.name)
    lines += [*_checks(answers.found.rows), f"sink: {yaml_line({'kind': 'parquet', 'path': sink})}"]
    return "\n".join([*lines, *_schedule(answers)]) + "\n"


def _source(answers: Answers) -> dict[str, Any]:
    path, columns = answers.path, answers.found.columns
    if is_relative(path):  # a deployment refuses relative paths
        path = os.path.abspath(path) + "/" * path.endswith("/")
    if reads_images_of_a_table(answers) and not columns.image_files:
        source = {"kind": "uris", "path": path, "content": "image", "uri_column": columns.image_uris}
        names = [name for name in columns.names if name != columns.image_uris]
        return source | ({"keep": names} if names else {})
    source = {"kind": answers.source, "path": path, **columns.settings}
    if answers.source == "images" and answers.found.has_folders:
        source["label_from"] = "parent"
    return source


def _inference(answers: Answers) -> list[dict[str, Any]]:
    column, work = column_read(answers), answers.work
    if work == "none":
        return []
    if work == "python":
        return [{"kind": "python", "target": f"{_module(answers)}:Model", "kwargs": {"column": column}}]
    if work not in CHAINS:
        return [{"kind": work, "model": answers.model, **offered_models()[work].settings(column)}]
    names = [name.strip() for name in answers.model.split(",")]
    if len(names) != 2 or not all(names):
        example = f"expected 2 names with commas, for example {CHAINS[work].model}"
        raise JobError(f"--model {answers.model}: {example}.")
    return [
        {"kind": "object_detection", "name": "found", "model": names[0]},
        {"kind": "crop_boxes", "boxes": "found_boxes"},
        {"kind": "image_classification", "name": "object", "model": names[1]},
    ]


def _checks(rows: int) -> list[str]:
    reason = f"half of the {rows:,} that are there now" if rows > 1 else "an empty result is refused"
    return [
        "checks:",
        f"  min_rows: {max(rows // 2, 1)} # {reason}",
        "  max_quarantined: 0.01 # a fraction of the rows read; above it, nothing is published",
    ]


def _schedule(answers: Answers) -> list[str]:
    cron = f"cron: {json.dumps(answers.cron or '0 2 * * *')}, timezone: {yaml_line(answers.timezone)}"
    if "{partition}" in answers.path:
        return [f"schedule: {{{cron}, offset_days: -1}} # each run takes the day before"]
    return [f"schedule: {{{cron}}} # each run takes all inputs, if they changed"] if answers.cron else []


def _one_line(text: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def skeleton(answers: Answers) -> str:
    """Return the source text of the user's own model. It runs as it is, and the user replaces its example."""
    column = column_read(answers)
    example = EXAMPLE
    if column == "image" or not is_table(answers.source):
        example = EXAMPLES.get(column, EXAMPLE)
    variable, about, result, value = example
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
    job = files[0].name
    commands = [f"overnight preview {job}", f"overnight run {job}"]
    if answers.folder.resolve() != Path.cwd():
        commands.insert(0, f"cd {answers.folder}")
    if answers.cron:
        commands.append(f"overnight deploy {job}")
    return commands
