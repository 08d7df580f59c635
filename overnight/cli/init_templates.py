"""`overnight init`: write a job file, and a skeleton of your own predictor, from a few answers. No file is overwritten.

This file knows the possible answers and the files that follow from them; `init.py` prompts. The job file is valid, or
no file is written.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from overnight.flows.job.loading import is_relative, load_job
from overnight.flows.job.yaml_loader import yaml_line
from overnight.tasks.errors import JobError
from overnight.tasks.infer.kinds import AnyPredictor, Offer
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.storage.location import Location

MODULE = "my_models"
MAX_FILES_INSPECTED = 1000  # the first known ending among these files decides the kind of the source

# The work on rows besides the tasks of models.
OWN_MODEL, NO_MODEL = (
    "a model of your own: init writes a skeleton",
    "no model: rows are read, preprocessed and written",
)
# For each source, the columns that a model can read, the usual one first, with the steps that make them.
STEPS: dict[str, dict[str, list[str]]] = {
    "image": {"image": []},
    "video": {
        "image": ["{kind: sample_frames, every_seconds: 1, longest_side: 800}"],
        "audio": ["{kind: decode_audio, column: video, chunk_seconds: 30}"],
    },
    "audio": {"audio": ["{kind: decode_audio, chunk_seconds: 30}"]},
    "pdf": {"text": ["{kind: pdf_text}", "{kind: split_text, size: 1000, overlap: 100}"]},
    "text": {"text": []},
}
RESIZE = "{kind: resize_image, size: 224}"
# For each column: its variable in the skeleton, its description, and an example of a result and its expression.
EXAMPLES = {
    "image": ("images", "arrays of uint8, N x height x width x 3", "brightness", "images.mean(axis=(1, 2, 3))"),
    "audio": ("sounds", "N arrays of float32, 1 x samples", "loudness", "np.array([abs(one).max() for one in sounds])"),
}
EXAMPLE = ("values", "an array of N values", "length", "np.array([len(str(value)) for value in values])")


@dataclass(frozen=True)
class Answers:
    """The answers to init's prompts. `path` is as in a job file; `text_column` is for tables."""

    folder: Path
    name: str
    path: str
    source: str
    work: str
    model: str = ""
    text_column: str = ""


def source_kinds() -> dict[str, tuple[str, ...]]:
    """Return the file sources whose only required setting is the path, with the endings of their files."""
    return {kind: leaf.extensions for kind, leaf in _sources().items()}


def _sources() -> dict[str, Any]:
    found = {}
    for leaf in get_args(get_args(Source)[0]):
        required = {name for name, field in leaf.model_fields.items() if field.is_required()}
        if getattr(leaf, "extensions", ()) and required <= {"path"}:
            found[leaf.model_fields["kind"].default] = leaf
    return found


def offered_models() -> dict[str, Offer]:
    """Return the kinds of models that have an `offer`."""
    leaves = get_args(get_args(AnyPredictor)[0])
    return {leaf.model_fields["kind"].default: leaf.offer for leaf in leaves if getattr(leaf, "offer", None)}


def find_source(path: str) -> str | None:
    """Return the kind of source that reads the first known file below `path`, or None without such a file."""
    place = re.split(r"[^/]*\{partition\}", path)[0] or "."
    try:
        for count, file in enumerate(Location(place).files()):
            for kind, endings in source_kinds().items():
                if file.path.lower().endswith(endings):
                    return kind
            if count == MAX_FILES_INSPECTED:
                break
    except Exception:  # of any kind: the user can answer instead
        return None
    return None


def default_name(folder: Path) -> str:
    """Return the folder's name with only the characters of a job's name."""
    return re.sub(r"[^a-z0-9_-]+", "-", folder.resolve().name.lower()).strip("-_") or "job"


def task_choices(source: str) -> dict[str, str]:
    """Return the kinds of work on a source's rows, each with its explanation."""
    columns = ["text"] if _sources()[source].holds_texts else [*_file_columns(source)]
    models = {kind: offer.words for kind, offer in offered_models().items() if offer.column in columns}
    return {**models, "python": OWN_MODEL, "none": NO_MODEL}


def needs_column_name(source: str, work: str) -> bool:
    """Return True if the user must name the column that the model reads."""
    return _sources()[source].holds_texts and _column_of(work) == "text"


def column_read(answers: Answers) -> str:
    """Return the column that the work reads: a fixed one for files, otherwise the one that the user named."""
    columns = _file_columns(answers.source)
    if not columns:
        return answers.text_column or "row_id"
    return _column_of(answers.work) or next(iter(columns))


def _column_of(work: str) -> str | None:
    offer = offered_models().get(work)
    return offer.column if offer else None


def _file_columns(source: str) -> dict[str, list[str]]:
    """Return the columns that a file can become, each with its steps. Return no columns for a table."""
    return STEPS.get(getattr(_sources()[source], "column", ""), {})


def create(answers: Answers) -> list[Path]:
    """Write the files and return them. Raise `JobError` if one exists or the job is not valid."""
    job_path = answers.folder / f"{answers.name}.yaml"
    files = {job_path: _job_file(answers)}
    if answers.work == "python":
        files[answers.folder / f"{MODULE}.py"] = skeleton(answers)
    for path in files:
        if path.exists():
            raise JobError(f"{path}: exists already, and init overwrites no file. Choose another --name or folder.")
    if answers.work not in task_choices(answers.source):
        raise JobError(
            f"--work {answers.work}: expected one of {', '.join(task_choices(answers.source))} for {answers.source}."
        )
    if _file_columns(answers.source) and answers.text_column not in ("", column_read(answers)):
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


def _job_file(answers: Answers) -> str:
    path, sink = answers.path, (answers.folder / "predictions" / answers.name).absolute()
    if is_relative(path):  # a deployment refuses relative paths
        path = os.path.abspath(path) + ("/" if path.endswith("/") else "")
    label = {"label_from": "parent"} if answers.source == "images" else {}
    lines = [
        f"# Run it in this folder: overnight run {answers.name}.yaml",
        f"name: {yaml_line(answers.name)}",
        f"source: {yaml_line({'kind': answers.source, 'path': path, **label})}",
    ]
    if steps := _steps(answers):
        lines += ["preprocess:", *(f"  - {step}" for step in steps)]
    if answers.work != "none":
        lines += ["inference:", f"  - {yaml_line(_model(answers))}"]
    lines += [
        "checks: {min_rows: 1, max_quarantined: 0.01} # a fraction of the rows read",
        f"sink: {yaml_line({'kind': 'parquet', 'path': os.path.normpath(sink)})}",
    ]
    if "{partition}" in path:
        lines.append('schedule: {cron: "0 2 * * *", timezone: UTC, offset_days: -1} # each night runs the day before')
    return "\n".join(lines) + "\n"


def _steps(answers: Answers) -> list[str]:
    column = column_read(answers)
    offer = offered_models().get(answers.work)
    resize = [RESIZE] if column == "image" and not (offer and offer.whole_images) else []
    return _file_columns(answers.source).get(column, []) + resize


def _model(answers: Answers) -> dict[str, Any]:
    column = column_read(answers)
    if answers.work == "python":
        return {"kind": "python", "target": f"{MODULE}:Model", "kwargs": {"column": column}}
    return {"kind": answers.work, "model": answers.model, **offered_models()[answers.work].settings(column)}


def skeleton(answers: Answers) -> str:
    """Return a predictor's source text that runs as it is; the user replaces it line by line."""
    column = column_read(answers)
    variable, about, result, value = EXAMPLES.get(column, EXAMPLE) if _file_columns(answers.source) else EXAMPLE
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
    """Return the commands that the user can type next."""
    here = answers.folder.resolve() == Path.cwd()
    job = files[0].name
    return [*([] if here else [f"cd {answers.folder}"]), f"overnight run {job} --limit-rows 20", f"overnight run {job}"]
