"""The sources that a job file may name, one line each."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from overnight.tasks.config.plugins import with_plugins
from overnight.tasks.ingest.listing.upstream import ShorterPartitions, Upstream
from overnight.tasks.ingest.source import Source as SourceLeaf
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.delta import Delta
from overnight.tasks.ingest.sources.huggingface import HuggingFace
from overnight.tasks.ingest.sources.iceberg import Iceberg
from overnight.tasks.ingest.sources.job import JobRows
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.lance import Lance
from overnight.tasks.ingest.sources.media_files import Audio, Images, Pdf, Video
from overnight.tasks.ingest.sources.numpy import Numpy
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.ingest.sources.sql import Sql
from overnight.tasks.ingest.sources.text import Text
from overnight.tasks.ingest.sources.tfrecord import TfRecord
from overnight.tasks.ingest.sources.uris import Uris
from overnight.tasks.ingest.sources.webdataset import WebDataset

__all__ = ["Files", "JobRows", "ShorterPartitions", "Source", "Tables", "Upstream"]

Files = Images | Audio | Video | Pdf | Text | Uris | Parquet | Csv | Jsonl | Numpy | WebDataset | TfRecord | HuggingFace
Tables = Delta | Lance | Iceberg | Sql
Source = Annotated[Files | Tables | JobRows, Field(discriminator="kind")]
if not TYPE_CHECKING:
    Source = with_plugins(Source, "sources", SourceLeaf)
