"""The sinks and the checks that a job file may name."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from overnight.tasks.config.plugins import with_plugins
from overnight.tasks.write.checks.settings import Checks
from overnight.tasks.write.sink import RECORDED_AS, Sink, UnreadableKind
from overnight.tasks.write.sinks.csv import CsvSink
from overnight.tasks.write.sinks.delta import DeltaSink
from overnight.tasks.write.sinks.iceberg import IcebergSink
from overnight.tasks.write.sinks.images import ImagesSink
from overnight.tasks.write.sinks.jsonl import JsonlSink
from overnight.tasks.write.sinks.lance import LanceSink
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.sinks.sql import SqlSink

__all__ = ["RECORDED_AS", "AnySink", "Checks", "Sink", "UnreadableKind"]

AnySink = Annotated[
    ParquetSink | JsonlSink | CsvSink | ImagesSink | DeltaSink | IcebergSink | LanceSink | SqlSink,
    Field(discriminator="kind"),
]
if not TYPE_CHECKING:
    AnySink = with_plugins(AnySink, "sinks", Sink)
