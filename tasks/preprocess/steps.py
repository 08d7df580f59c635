"""The steps that a job file may name: one line each."""

from typing import Annotated

from pydantic import Field

from tasks.preprocess.decode_image import DecodeImage
from tasks.preprocess.derive_columns import DeriveColumns
from tasks.preprocess.filter_rows import FilterRows
from tasks.preprocess.python import PythonStep
from tasks.preprocess.resize_image import ResizeImage

Step = Annotated[DecodeImage | ResizeImage | FilterRows | DeriveColumns | PythonStep, Field(discriminator="kind")]
