"""The Parquet sink: `<path>/date=D/part-*.parquet`, published by `hive_files.py`."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import PART, Record
from overnight.tasks.write.merge.known_types import of_known_types
from overnight.tasks.write.merge.merge_parts import Prepared, merge, published_schema
from overnight.tasks.write.sink import ParquetCompression, file_prefix
from overnight.tasks.write.sinks.hive_files import HiveFiles, make_place


class ParquetSink(HiveFiles):
    """Hive-partitioned Parquet files on any filesystem."""

    kind: Literal["parquet"] = "parquet"
    compression: Annotated[ParquetCompression, Field(description="The compression of the Parquet files.")] = "zstd"

    operational: ClassVar[tuple[str, ...]] = ("compression",)

    @property
    def staged_compression(self) -> str:
        return self.compression

    def cannot_rewrite(self, run: Run, schema: pa.Schema, files: Sequence[str]) -> str:
        return ""

    def prepare(self, run: Run, records: list[Record], merged: pa.Table) -> Prepared:
        schema, folder = of_known_types(published_schema(records)), make_place(run)
        return merge(
            run.parts, records, merged, schema, folder, file_prefix(run), PART, self.compression, self.target_file_size
        )
