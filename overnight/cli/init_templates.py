"""`overnight init`: a job file, and where asked a predictor of one's own, from a few answers. Nothing is overwritten.

Knows which answers there are and what the files then say; `init.py` asks. The job file is valid, or nothing is written.
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
MAX_FILES_INSPECTED = 1000  # files, of which one says what the inputs are

# What may be done with rows besides the tasks of models.
OWN_MODEL, NO_MODEL = (
    "a model of your own, with a skeleton to begin from",
    "no model: rows are read, prepared and written",
)
# The columns that a file's own column becomes, the usual one first, and the steps that make them.
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
# What a skeleton calls the column it reads, what that is, and an example of what may be made of it.
EXAMPLES = {
    "image": ("images", "arrays of uint8, N x height x width x 3", "brightness", "images.mean(axis=(1, 2, 3))"),
    "audio": ("sounds", "N arrays of float32, 1 x samples", "loudness", "np.array([abs(one).max() for one in sounds])"),
}
EXAMPLE = ("values", "an array of N values", "length", "np.array([len(str(value)) for value in values])")


@dataclass(frozen=True)
class Answers:
    """What a person wants. `path` as in a job file; `model` where the work has one, `text_column` for tables."""

    folder: Path
    name: str
    path: str
    source: str
    work: str
    model: str = ""
    text_column: str = ""


def source_kinds() -> dict[str, tuple[str, ...]]:
    """Return the sources of files that need a path alone, and the endings of their files."""
    return {kind: leaf.extensions for kind, leaf in _sources().items()}


def _sources() -> dict[str, Any]:
    found = {}
    for leaf in get_args(get_args(Source)[0]):
        required = {name for name, field in leaf.model_fields.items() if field.is_required()}
        if getattr(leaf, "extensions", ()) and required <= {"path"}:
            found[leaf.model_fields["kind"].default] = leaf
    return found


def offered_models() -> dict[str, Offer]:
    """Return the kinds of models that say what they are offered for."""
    leaves = get_args(get_args(AnyPredictor)[0])
    return {leaf.model_fields["kind"].default: leaf.offer for leaf in leaves if getattr(leaf, "offer", None)}


def find_source(path: str) -> str | None:
    """The kind of source that reads the first known file below `path`, None where there is none to be seen."""
    place = re.split(r"[^/]*\{partition\}", path)[0] or "."
    try:
        for count, file in enumerate(Location(place).files()):
            for kind, endings in source_kinds().items():
                if file.path.lower().endswith(endings):
                    return kind
            if count == MAX_FILES_INSPECTED:
                break
    except Exception:  # whatever it is, a person can say it
        return None
    return None


def default_name(folder: Path) -> str:
    """The folder's name as a job may be called."""
    return re.sub(r"[^a-z0-9_-]+", "-", folder.resolve().name.lower()).strip("-_") or "job"


def task_choices(source: str) -> dict[str, str]:
    """Return the work that rows of a source can be given, with its explanation."""
    columns = ["text"] if _sources()[source].holds_texts else [*_file_columns(source)]
    models = {kind: offer.words for kind, offer in offered_models().items() if offer.column in columns}
    return {**models, "python": OWN_MODEL, "none": NO_MODEL}


def needs_column_name(source: str, work: str) -> bool:
    """Return True if a person must name the column that the model reads."""
    return _sources()[source].holds_texts and _column_of(work) == "text"


def column_read(answers: Answers) -> str:
    """Return the column that the work is on: its own of files, otherwise the one that was named."""
    columns = _file_columns(answers.source)
    if not columns:
        return answers.text_column or "row_id"
    return _column_of(answers.work) or next(iter(columns))


def _column_of(work: str) -> str | None:
    offer = offered_models().get(work)
    return offer.column if offer else None


def _file_columns(source: str) -> dict[str, list[str]]:
    """Return the columns that can be had of a file, each with its steps; none of a table."""
    return STEPS.get(getattr(_sources()[source], "column", ""), {})


def create(answers: Answers) -> list[Path]:
    """Writes the files and returns them. Raises `JobError` where one is there or the job would not be valid."""
    job_path = answers.folder / f"{answers.name}.yaml"
    files = {job_path: _job_file(answers)}
    if answers.work == "python":
        files[answers.folder / f"{MODULE}.py"] = skeleton(answers)
    for path in files:
        if path.exists():
            raise JobError(f"{path}: is there already, and init overwrites nothing. Choose another --name or folder.")
    if answers.work not in task_choices(answers.source):
        raise JobError(
            f"--work {answers.work}: expected one of {', '.join(task_choices(answers.source))} for {answers.source}."
        )
    if _file_columns(answers.source) and answers.text_column not in ("", column_read(answers)):
        raise JobError(
            f"--text-column {answers.text_column}: of {answers.source} the work is on the column "
            f"{column_read(answers)}. Leave it out."
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
    if is_relative(path):  # a deployment takes full paths alone
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
        lines.append('schedule: {cron: "0 2 * * *", timezone: UTC, offset_days: -1} # every night the day before')
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
    """A predictor that runs on the rows as it is, to be replaced line by line."""
    column = column_read(answers)
    variable, about, result, value = EXAMPLES.get(column, EXAMPLE) if _file_columns(answers.source) else EXAMPLE
    return f'''"""A model of your own: loaded once a worker, called once a batch. What stands here only shows how."""

import numpy as np


class Model:
    def __init__(self, column: str = "{column}") -> None:
        """Once a worker, with the job file's `kwargs`: load weights here."""
        self.column = column

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Once a batch: every column as an array of N rows in, columns of N values out, which are added to the rows."""
        {variable} = batch[self.column]  # {about}
        return {{"{result}": {value}}}
'''


def next_commands(answers: Answers, files: Sequence[Path]) -> list[str]:
    """What a person may type now."""
    here = answers.folder.resolve() == Path.cwd()
    job = files[0].name
    return [*([] if here else [f"cd {answers.folder}"]), f"overnight run {job} --limit-rows 20", f"overnight run {job}"]
