"""The steps that a job file may name, one line each."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from overnight.tasks.config.plugins import with_plugins
from overnight.tasks.preprocess.step import PartitionStep, PreprocessStep
from overnight.tasks.preprocess.steps.crop_boxes import CropBoxes
from overnight.tasks.preprocess.steps.decode_audio import DecodeAudio
from overnight.tasks.preprocess.steps.decode_image import DecodeImage
from overnight.tasks.preprocess.steps.deduplicate import Deduplicate
from overnight.tasks.preprocess.steps.derive_columns import DeriveColumns
from overnight.tasks.preprocess.steps.explode import Explode
from overnight.tasks.preprocess.steps.filter_rows import FilterRows
from overnight.tasks.preprocess.steps.pdf_text import PdfText
from overnight.tasks.preprocess.steps.python import PythonStep
from overnight.tasks.preprocess.steps.resize_image import ResizeImage
from overnight.tasks.preprocess.steps.sample_frames import SampleFrames
from overnight.tasks.preprocess.steps.split_text import SplitText
from overnight.tasks.preprocess.steps.whole_columns import DropColumns, RenameColumns, SelectColumns

__all__ = ["PartitionStep", "PreprocessStep", "PythonStep", "RenameColumns", "Step"]

Step = Annotated[
    DecodeImage
    | ResizeImage
    | DecodeAudio
    | SampleFrames
    | PdfText
    | SplitText
    | FilterRows
    | Deduplicate
    | DeriveColumns
    | SelectColumns
    | DropColumns
    | RenameColumns
    | Explode
    | CropBoxes
    | PythonStep,
    Field(discriminator="kind"),
]
if not TYPE_CHECKING:
    Step = with_plugins(Step, "steps", PreprocessStep)
