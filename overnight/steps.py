"""The steps of a job: `overnight.steps.ResizeImage(size=224)` is `{kind: resize_image, size: 224}`."""

from overnight.tasks.preprocess.steps.crop_boxes import CropBoxes
from overnight.tasks.preprocess.steps.decode_audio import DecodeAudio
from overnight.tasks.preprocess.steps.decode_image import DecodeImage
from overnight.tasks.preprocess.steps.deduplicate import Deduplicate, NearSettings
from overnight.tasks.preprocess.steps.derive_columns import DeriveColumns
from overnight.tasks.preprocess.steps.explode import Explode
from overnight.tasks.preprocess.steps.filter_rows import FilterRows
from overnight.tasks.preprocess.steps.pdf_text import PdfText
from overnight.tasks.preprocess.steps.python import PythonStep as Python
from overnight.tasks.preprocess.steps.resize_image import ResizeImage
from overnight.tasks.preprocess.steps.sample_frames import SampleFrames
from overnight.tasks.preprocess.steps.split_text import SplitText
from overnight.tasks.preprocess.steps.whole_columns import DropColumns, RenameColumns, SelectColumns

__all__ = [
    "CropBoxes",
    "DecodeAudio",
    "DecodeImage",
    "Deduplicate",
    "DeriveColumns",
    "DropColumns",
    "Explode",
    "FilterRows",
    "NearSettings",
    "PdfText",
    "Python",
    "RenameColumns",
    "ResizeImage",
    "SampleFrames",
    "SelectColumns",
    "SplitText",
]
