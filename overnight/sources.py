"""The sources of a job: `overnight.sources.Images(path="photos")` is `source: {kind: images, path: photos}`."""

from overnight.tasks.ingest.source import WaitFor
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

__all__ = [
    "Audio",
    "Csv",
    "Delta",
    "HuggingFace",
    "Iceberg",
    "Images",
    "JobRows",
    "Jsonl",
    "Lance",
    "Numpy",
    "Parquet",
    "Pdf",
    "Sql",
    "Text",
    "TfRecord",
    "Uris",
    "Video",
    "WaitFor",
    "WebDataset",
]
