"""The sinks that a job file may name: one line each; and its checks."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tasks.plugins import with_plugins
from tasks.write.checks import Checks
from tasks.write.csv import CsvSink
from tasks.write.delta import DeltaSink
from tasks.write.iceberg import IcebergSink
from tasks.write.images import ImagesSink
from tasks.write.jsonl import JsonlSink
from tasks.write.lance import LanceSink
from tasks.write.parquet import ParquetSink
from tasks.write.sink import Sink
from tasks.write.sql import SqlSink

__all__ = ["AnySink", "Checks", "Sink"]

AnySink = Annotated[
    ParquetSink | JsonlSink | CsvSink | ImagesSink | DeltaSink | IcebergSink | LanceSink | SqlSink,
    Field(discriminator="kind"),
]
if not TYPE_CHECKING:
    AnySink = with_plugins(AnySink, "sinks", Sink)
