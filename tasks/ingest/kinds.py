"""The sources that a job file may name: one line each."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tasks.ingest.audio import Audio
from tasks.ingest.csv import Csv
from tasks.ingest.delta import Delta
from tasks.ingest.huggingface import HuggingFace
from tasks.ingest.iceberg import Iceberg
from tasks.ingest.images import Images
from tasks.ingest.jsonl import Jsonl
from tasks.ingest.lance import Lance
from tasks.ingest.numpy import Numpy
from tasks.ingest.parquet import Parquet
from tasks.ingest.pdf import Pdf
from tasks.ingest.source import Source as SourceLeaf
from tasks.ingest.sql import Sql
from tasks.ingest.text import Text
from tasks.ingest.tfrecord import TfRecord
from tasks.ingest.uris import Uris
from tasks.ingest.video import Video
from tasks.ingest.webdataset import WebDataset
from tasks.plugins import with_plugins

Files = Images | Audio | Video | Pdf | Text | Uris | Parquet | Csv | Jsonl | Numpy | WebDataset | TfRecord | HuggingFace
Tables = Delta | Lance | Iceberg | Sql
Source = Annotated[Files | Tables, Field(discriminator="kind")]
if not TYPE_CHECKING:
    Source = with_plugins(Source, "sources", SourceLeaf)
