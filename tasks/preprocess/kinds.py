"""The steps that a job file may name: one line each."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tasks.plugins import with_plugins
from tasks.preprocess.decode_audio import DecodeAudio
from tasks.preprocess.decode_image import DecodeImage
from tasks.preprocess.derive_columns import DeriveColumns
from tasks.preprocess.filter_rows import FilterRows
from tasks.preprocess.pdf_text import PdfText
from tasks.preprocess.python import PythonStep
from tasks.preprocess.resize_image import ResizeImage
from tasks.preprocess.sample_frames import SampleFrames
from tasks.preprocess.split_text import SplitText
from tasks.preprocess.step import PreprocessStep

Step = Annotated[
    DecodeImage
    | ResizeImage
    | DecodeAudio
    | SampleFrames
    | PdfText
    | SplitText
    | FilterRows
    | DeriveColumns
    | PythonStep,
    Field(discriminator="kind"),
]
if not TYPE_CHECKING:
    Step = with_plugins(Step, "steps", PreprocessStep)
