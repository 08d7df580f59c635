"""The possible answers of `overnight init`: the kinds of inputs, the work on them, and the column that the work reads.

They follow from the types of sources and models, and from what init found in the inputs.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from overnight.cli.init_look import Found
from overnight.cli.init_rows import sources
from overnight.flows.job.yaml_loader import yaml_line
from overnight.tasks.infer.kinds import AnyPredictor, Offer

# The work on rows besides the tasks of models.
OWN_MODEL = "a model of your own: init writes a skeleton"
NO_MODEL = "no model: rows are read, preprocessed and written"
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


# Chains of models that read columns of earlier ones, with a usual name for each model.
CHAINS = {
    "object_classification": Offer(
        "a chain: objects are found in images, cropped, and labelled by a second model",
        "image",
        "hustvl/yolos-tiny,google/vit-base-patch16-224",
        whole_images=True,
        architecture="yolos,vit",
    ),
}


@dataclass(frozen=True)
class Answers:
    """The answers to the prompts of init, and what init found in the inputs.

    `folder` is where init writes its files. `path` is the place of the inputs, as in a job file. `source` is their
    kind. `work` is the kind of a model, the name of a chain of models, `python` or `none`. `model` names its model, or
    those of a chain with commas.

    `text_column` is for tables. If `cron` is empty, a path with {partition} gets the usual schedule, and any other path
    gets none.
    """

    folder: Path
    name: str
    path: str
    source: str
    work: str
    model: str = ""
    text_column: str = ""
    found: Found = field(default_factory=Found)
    cron: str = ""
    timezone: str = "UTC"


def _file_sources() -> dict[str, Any]:
    """Return the classes of the sources of files that require only a path, by their kinds."""
    leaves = {}
    for kind, leaf in sources().items():
        settings = {name for name, field in leaf.model_fields.items() if field.is_required()}
        if getattr(leaf, "extensions", ()) and settings <= {"path"}:
            leaves[kind] = leaf
    return leaves


def source_kinds() -> dict[str, tuple[str, ...]]:
    """Return the kinds of sources that init offers, each with the endings of its files."""
    return {kind: leaf.extensions for kind, leaf in _file_sources().items()}


def offered_models() -> dict[str, Offer]:
    """Return what `overnight init` shows about each kind of model that it offers, by kind."""
    leaves = get_args(get_args(AnyPredictor)[0])
    return {leaf.model_fields["kind"].default: leaf.offer for leaf in leaves if getattr(leaf, "offer", None)}


def offers() -> dict[str, Offer]:
    """Return what `overnight init` shows about all work with models: by the kind of a model, or the name of a chain."""
    return offered_models() | CHAINS


def default_name(folder: Path) -> str:
    """Return the folder's name with only the characters that a job's name can have, or `job` if none is left."""
    return re.sub(r"[^a-z0-9_-]+", "-", folder.resolve().name.lower()).strip("-_") or "job"


def task_choices(source: str, found: Found | None = None) -> dict[str, str]:
    """Return the kinds of work that fit the rows of a kind of source, each with its explanation.

    For a table, the kinds depend on `found`: only a table with images gets the work on images.
    """
    columns = list(_file_columns(source))
    if _file_sources()[source].holds_texts:
        columns = ["text"]
        if found and has_images(found):
            columns.append("image")
    choices = {kind: offer.words for kind, offer in offers().items() if offer.column in columns}
    return choices | {"python": OWN_MODEL, "none": NO_MODEL}


def has_images(found: Found) -> bool:
    """Return True if init found a table with images: image files in a column, or paths to them.

    The source `uris`, which reads paths, needs commas and a header line.
    """
    columns = found.columns
    return bool(columns.image_files or (columns.image_uris and not columns.settings))


def needs_column_name(source: str, work: str) -> bool:
    """Return True if the user must name the column that the model reads: for a model of texts on a table."""
    return _file_sources()[source].holds_texts and _column_of(work) == "text"


def reads_images_of_a_table(answers: Answers) -> bool:
    """Return True if the work reads a column with images of a table.

    Your own model does so unless you name another column.
    """
    if not is_table(answers.source) or not has_images(answers.found):
        return False
    is_own = answers.work == "python" and not answers.text_column
    return is_own or _column_of(answers.work) == "image"


def column_read(answers: Answers) -> str:
    """Return the column that the work reads. For files it is fixed, and so is `image` for a table with images.

    For another table it is the column that the user named, by default the one with the longest texts.
    """
    if reads_images_of_a_table(answers):
        return "image"
    if is_table(answers.source):
        return answers.text_column or next(iter(answers.found.columns.texts), "row_id")
    return _column_of(answers.work) or next(iter(_file_columns(answers.source)))


def steps(answers: Answers) -> list[str]:
    """Return the steps that make the column that the work reads, each as one line of YAML."""
    column, offer = column_read(answers), offers().get(answers.work)
    resize = []
    if column == "image" and not (offer and offer.whole_images):
        resize = [RESIZE]
    image_files = answers.found.columns.image_files
    if not image_files or not reads_images_of_a_table(answers):
        return _file_columns(answers.source).get(column, []) + resize
    decode = resize or ["{kind: decode_image}"]
    if image_files == "image":
        return decode
    return [f"{{kind: rename_columns, columns: {yaml_line({image_files: 'image'})}}}", *decode]


def _column_of(work: str) -> str | None:
    offer = offers().get(work)
    return offer.column if offer else None


def _file_columns(source: str) -> dict[str, list[str]]:
    """Return the columns that a file can become, each with its steps. Return no columns for a table."""
    return STEPS.get(getattr(_file_sources()[source], "column", ""), {})


def is_table(source: str) -> bool:
    """Return True if the rows of a source have columns of their own, and False if each row is a file."""
    return not _file_columns(source)
