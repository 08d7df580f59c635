"""The possible answers of `overnight init`: the work on the inputs, and the column that it reads.

They follow from the types of sources and models, and from what init sees of the inputs.
"""

from dataclasses import dataclass, field
from pathlib import Path

from overnight.cli.init_rows import SOURCES, Inputs
from overnight.flows.job.yaml_loader import yaml_line
from overnight.tasks.config.plugins import leaves_by_kind
from overnight.tasks.infer.kinds import AnyPredictor, Offer

# The work on rows besides the tasks of models.
OTHER_WORK = {
    "python": "a model of your own: init writes a skeleton",
    "none": "no model: rows are read, preprocessed and written",
}
# For each column of files, what models read, the usual content first, with the steps to it.
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
IMAGE_SIZE = 224  # pixels, unless the pictures that init opens are smaller
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
    """The answers to the prompts of init, and what init sees of the inputs."""

    folder: Path  # for the files of init
    name: str
    path: str  # of the inputs, as in a job file
    source: str
    work: str  # the kind of a model, the name of a chain of models, `python` or `none`
    model: str = ""  # or those of a chain, with commas
    text_column: str = ""  # of a table
    inputs: Inputs = field(default_factory=Inputs)
    cron: str = ""  # if it is empty, a path with {partition} gets the usual schedule
    timezone: str = "UTC"

    @property
    def content(self) -> str:
        """Return what the work reads: `image`, `audio`, `text`, or an empty text for another column.

        Work on any column reads the images of a table, unless the user names another column.
        """
        contents, column = _contents(self.source, self.inputs), column_of(self.work)
        if column in contents:
            return column
        if is_table(self.source):
            names_no_other = self.text_column in ("", self.inputs.image_files)
            return "image" if column == "any" and "image" in contents and names_no_other else ""
        return next(iter(contents))

    @property
    def column(self) -> str:
        """Return the column that the work reads. For files and for images it is fixed.

        For a table it is the one that the user named, by default the one with the longest texts.
        """
        if self.content == "image" or not is_table(self.source):
            return self.content
        return self.text_column or next(iter(self.inputs.texts + self.inputs.numbers), "row_id")

    @property
    def steps(self) -> list[str]:
        """Return the steps that make the column that the work reads, each as one line of YAML."""
        steps = _contents(self.source, self.inputs).get(self.content, [])
        offer = offers().get(self.work)
        if self.content != "image":
            return steps
        if not offer or not offer.whole_images:
            size = min(self.inputs.longest_side or IMAGE_SIZE, IMAGE_SIZE)
            return [*steps, f"{{kind: resize_image, size: {size}}}"]
        return [*steps, "{kind: decode_image}"] if self.inputs.image_files else steps


def offers() -> dict[str, Offer]:
    """Return what init shows about work with models, by their kind or by the name of a chain."""
    offers = {}
    for kind, leaf in leaves_by_kind(AnyPredictor).items():
        if getattr(leaf, "offer", None):
            offers[kind] = leaf.offer
    return offers | CHAINS


def task_choices(source: str, inputs: Inputs | None = None) -> dict[str, str]:
    """Return the kinds of work that fit such rows, each with its explanation."""
    contents = {"any", *_contents(source, inputs or Inputs())}
    models = {work: offer.words for work, offer in offers().items() if offer.column in contents}
    return models | OTHER_WORK


def is_table(source: str) -> bool:
    """Return True if the rows of a source have columns of their own; otherwise each row is a file."""
    return getattr(SOURCES[source], "column", "") not in STEPS


def column_of(work: str) -> str:
    """Return the column that the work needs, `any`, or an empty text for none."""
    if work in OTHER_WORK:
        return "any" if work == "python" else ""
    return offers()[work].column


def _contents(source: str, inputs: Inputs) -> dict[str, list[str]]:
    """Return what models can read of the rows, each with the steps that make the column.

    Paths of images need the source `uris`, which reads a list with commas and a header line.
    """
    if not is_table(source):
        return STEPS[SOURCES[source].column]
    contents: dict[str, list[str]] = {}
    if SOURCES[source].holds_texts:
        contents["text"] = []
    if inputs.image_files or (inputs.image_uris and not inputs.settings):
        contents["image"] = []
    if inputs.image_files not in ("", "image"):
        step = {"kind": "rename_columns", "columns": {inputs.image_files: "image"}}
        contents["image"] = [yaml_line(step)]
    return contents
