"""`overnight init`: a job file, and where asked a predictor of one's own, from a few answers. Nothing is overwritten.

Knows which answers there are and what the files then say; `cli.py` asks. The job file is valid, or nothing is written.
"""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from flows.job import is_relative, load_job
from tasks.errors import JobError
from tasks.ingest.task import Source
from tasks.storage import Location

MODULE = "my_models"
LOOKED_AT = 1000  # files, of which one says what the inputs are

# What may be done with rows, and what it is called where a person is asked.
WORK = {
    "image_embedding": "vectors of images, for search and clustering (CLIP, DINOv2, ...)",
    "image_classification": "labels of images (ResNet, ViT, ...)",
    "text_embedding": "vectors of texts, for search and clustering (MiniLM, ...)",
    "text_classification": "labels of texts, sentiment for example",
    "text_generation": "texts made of texts: summaries, answers",
    "python": "a model of your own, with a skeleton to begin from",
    "none": "no model: rows are read, prepared and written",
}
MODELS = {
    "image_embedding": "openai/clip-vit-base-patch32",
    "image_classification": "microsoft/resnet-152",
    "text_embedding": "sentence-transformers/all-MiniLM-L6-v2",
    "text_classification": "distilbert/distilbert-base-uncased-finetuned-sst-2-english",
    "text_generation": "Qwen/Qwen2.5-0.5B-Instruct",
}


@dataclass(frozen=True)
class Answers:
    """What a person wants. `path` as in a job file; `model` and `text_column` where the work has them."""

    folder: Path
    name: str
    path: str
    source: str
    work: str
    model: str = ""
    text_column: str = ""


def source_kinds() -> dict[str, tuple[str, ...]]:
    """The sources of files that need a path alone, and the endings of their files."""
    found = {}
    for leaf in get_args(get_args(Source)[0]):
        required = {name for name, field in leaf.model_fields.items() if field.is_required()}
        if getattr(leaf, "extensions", ()) and required <= {"path"}:
            found[leaf.model_fields["kind"].default] = leaf.extensions
    return found


def find_source(path: str) -> str | None:
    """The kind of source that reads the first known file below `path`, None where there is none to be seen."""
    place = re.split(r"[^/]*\{partition\}", path)[0] or "."
    try:
        for count, file in enumerate(Location(place).files()):
            for kind, endings in source_kinds().items():
                if file.path.lower().endswith(endings):
                    return kind
            if count == LOOKED_AT:
                break
    except Exception:  # whatever it is, a person can say it
        return None
    return None


def default_name(folder: Path) -> str:
    """The folder's name as a job may be called."""
    return re.sub(r"[^a-z0-9_-]+", "-", folder.resolve().name.lower()).strip("-_") or "job"


def works_for(source: str) -> dict[str, str]:
    """The work that rows of a source can be given, with its explanation."""
    other = "text_" if source == "images" else "image_"
    return {work: words for work, words in WORK.items() if not work.startswith(other)}


def create(answers: Answers) -> list[Path]:
    """Writes the files and returns them. Raises `JobError` where one is there or the job would not be valid."""
    job_path = answers.folder / f"{answers.name}.yaml"
    files = {job_path: _job_file(answers)}
    if answers.work == "python":
        files[answers.folder / f"{MODULE}.py"] = skeleton(answers)
    for path in files:
        if path.exists():
            raise JobError(f"{path}: is there already, and init overwrites nothing. Choose another --name or folder.")
    if answers.work not in works_for(answers.source):
        raise JobError(
            f"--work {answers.work}: expected one of {', '.join(works_for(answers.source))} for {answers.source}."
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
    path = answers.path
    if is_relative(path):  # as seen from where the job will be run
        path = os.path.relpath(path, answers.folder) + ("/" if path.endswith("/") else "")
    label = {"label_from": "parent"} if answers.source == "images" else {}
    lines = [
        f"# Run it in this folder: overnight run {answers.name}.yaml",
        f"name: {_flow(answers.name)}",
        f"source: {_flow({'kind': answers.source, 'path': path, **label})}",
    ]
    if answers.source == "images":
        lines += ["preprocess:", "  - {kind: resize_image, size: 224}"]
    if answers.work != "none":
        lines += ["inference:", f"  - {_flow(_model(answers))}"]
    lines += [
        "checks: {min_rows: 1, max_quarantined: 0.01} # a fraction of the rows read",
        f"sink: {_flow({'kind': 'parquet', 'path': f'predictions/{answers.name}'})}",
    ]
    if "{partition}" in path:
        lines.append('schedule: {cron: "0 2 * * *", timezone: UTC, offset_days: -1} # every night the day before')
    return "\n".join(lines) + "\n"


def _model(answers: Answers) -> dict[str, Any]:
    if answers.work == "python":
        return {"kind": "python", "target": f"{MODULE}:Model", "kwargs": _own_column(answers)}
    column = {"text_column": answers.text_column} if answers.work.startswith("text_") else {}
    fits = answers.work == "text_generation" and re.fullmatch(r"\w+", answers.text_column)
    prompt = {"prompt": f"Summarise: {{{answers.text_column}}}"} if fits else {}
    return {"kind": answers.work, "model": answers.model, **column, **prompt}


def _own_column(answers: Answers) -> dict[str, str]:
    return {"column": "image" if answers.source == "images" else answers.text_column or "row_id"}


def _flow(value: Any) -> str:
    """A value as YAML on one line, texts in quotes only where they need them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    text = str(value)
    return text if re.fullmatch(r"[A-Za-z_./][\w./-]*", text) and not _is_word(text) else json.dumps(text)


def _is_word(text: str) -> bool:
    return text.lower() in ("true", "false", "null", "yes", "no", "on", "off", "y", "n")


def skeleton(answers: Answers) -> str:
    """A predictor that runs on the rows as it is, to be replaced line by line."""
    if answers.source == "images":
        about, value = "arrays of uint8, N x height x width x 3", "images.mean(axis=(1, 2, 3))"
        variable, column, result = "images", "image", "brightness"
    else:
        about, value = "an array of N values", "np.array([len(str(value)) for value in values])"
        variable, column, result = "values", _own_column(answers)["column"], "length"
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
