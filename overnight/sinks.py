"""The sinks of a job: `overnight.sinks.Parquet(path="predictions")` is `sink: {kind: parquet, path: predictions}`."""

from overnight.tasks.write.sinks.csv import CsvSink as Csv
from overnight.tasks.write.sinks.delta import DeltaSink as Delta
from overnight.tasks.write.sinks.iceberg import IcebergSink as Iceberg
from overnight.tasks.write.sinks.images import ImagesSink as Images
from overnight.tasks.write.sinks.jsonl import JsonlSink as Jsonl
from overnight.tasks.write.sinks.lance import LanceSink as Lance
from overnight.tasks.write.sinks.parquet import ParquetSink as Parquet
from overnight.tasks.write.sinks.sql import SqlSink as Sql

__all__ = ["Csv", "Delta", "Iceberg", "Images", "Jsonl", "Lance", "Parquet", "Sql"]
