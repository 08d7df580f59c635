"""The possible answers of `overnight init`: the kinds of inputs, the work on them, and the column that the work reads.

They follow from the types of sources and models, and from what init sees of the inputs.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from overnight.cli.init_rows import Inputs, sources
from overnight.flows.job.yaml_loader import yaml_line
from overnight.tasks.infer.kinds import AnyPredictor, Offer

# The work on rows besides the tasks of models.
OTHER_WORK = {
    "python": "a model of your own: init writes a skeleton",
    "none": "no model: rows are read, preprocessed and written",
}
# For each column of files, the columns that a model can read, the usual one first, with the steps that make them.
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
IMAGE_SIZE = 224  # pixels, unless all pictures are smaller
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
    """The answers to the prompts of init, and what init sees of the inputs.

    `folder` is where init writes its files. `path` is the place of the inputs, as in a job file. `source` is their
    kind. `work` is the kind of a model, the name of a chain of models, `python` or `none`. `model` names its model, or
    those of a chain with commas. `text_column` is for tables. If `cron` is empty, a path with {partition} gets the
    usual schedule, and any other path gets none.
    """

    folder: Path
    name: str
    path: str
    source: str
    work: str
    model: str = ""
    text_column: str = ""
    inputs: Inputs = field(default_factory=Inputs)
    cron: str = ""
    timezone: str = "UTC"

    @property
    def content(self) -> str:
        """Return what the work reads: `image`, `audio` or `text`, or an empty text for a column of another kind.

        Work on columns of any kind reads the images of a table, unless the user names another column.
        """
        contents, column = _contents(self.source, self.inputs), column_of(self.work)
        if column in contents:
            return column
        if is_table(self.source):
            return "image" if column == "any" and "image" in contents and not self.text_column else ""
        return next(iter(contents))

    @property
    def column(self) -> str:
        """Return the column that the work reads. For files it is fixed, and so is `image` for a table with images.

        For another table it is the column that the user named, by default the one with the longest texts.
        """
        if self.content == "image" or not is_table(self.source):
            return self.content
        return self.text_column or next(iter(self.inputs.texts + self.inputs.numbers), "row_id")

    @property
    def steps(self) -> list[str]:
        """Return the steps that make the column that the work reads, each as one line of YAML."""
        steps, offer = _contents(self.source, self.inputs).get(self.content, []), offers().get(self.work)
        if self.content != "image":
            return steps
        if not offer or not offer.whole_images:
            size = min(self.inputs.longest_side or IMAGE_SIZE, IMAGE_SIZE)
            return [*steps, f"{{kind: resize_image, size: {size}}}"]
        return [*steps, "{kind: decode_image}"] if self.inputs.image_files else steps


def source_kinds() -> dict[str, tuple[str, ...]]:
    """Return the kinds of sources that init offers, each with the endings of its files.

    They read files, and require only a path.
    """
    kinds = {}
    for kind, leaf in sources().items():
        required = {name for name, field in leaf.model_fields.items() if field.is_required()}
        if getattr(leaf, "extensions", ()) and required <= {"path"}:
            kinds[kind] = leaf.extensions
    return kinds


def offers() -> dict[str, Offer]:
    """Return what init shows about all work with models: by the kind of a model, or the name of a chain."""
    leaves = get_args(get_args(AnyPredictor)[0])
    return {leaf.model_fields["kind"].default: leaf.offer for leaf in leaves if getattr(leaf, "offer", None)} | CHAINS


def task_choices(source: str, inputs: Inputs | None = None) -> dict[str, str]:
    """Return the kinds of work that fit the rows of a kind of source, each with its explanation.

    For a table, the kinds depend on `inputs`: only a table with images gets the work on images.
    """
    contents = {"any", *_contents(source, inputs or Inputs())}
    return {work: offer.words for work, offer in offers().items() if offer.column in contents} | OTHER_WORK


def is_table(source: str) -> bool:
    """Return True if the rows of a source have columns of their own, and False if each row is a file."""
    return getattr(sources()[source], "column", "") not in STEPS


def column_of(work: str) -> str:
    """Return the column that the work needs: `any` for a column of any kind, and an empty text for none."""
    if work in OTHER_WORK:
        return "any" if work == "python" else ""
    return offers()[work].column


def _contents(source: str, inputs: Inputs) -> dict[str, list[str]]:
    """Return what models can read of the rows, each with the steps that make the column.

    Paths of images need the source `uris`, which reads a list with commas and a header line.
    """
    if not is_table(source):
        return STEPS[sources()[source].column]
    contents: dict[str, list[str]] = {}
    if sources()[source].holds_texts:
        contents["text"] = []
    if inputs.image_files or (inputs.image_uris and not inputs.settings):
        contents["image"] = []
    if inputs.image_files not in ("", "image"):
        contents["image"] = [f"{{kind: rename_columns, columns: {yaml_line({inputs.image_files: 'image'})}}}"]
    return contents
