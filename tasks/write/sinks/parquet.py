"""The Parquet sink: `<path>/date=D/part-*.parquet`, published as `hive_files.py` does."""

from typing import Literal

import pyarrow as pa

from tasks.run_directory import Run
from tasks.staging import PART, Record
from tasks.write.hive_files import HiveFiles, make_place
from tasks.write.known_types import of_known_types
from tasks.write.merging import Prepared, merge, published_schema
from tasks.write.sink import ParquetCompression, file_prefix


class ParquetSink(HiveFiles):
    """Hive-partitioned Parquet files on any filesystem."""

    kind: Literal["parquet"] = "parquet"
    compression: ParquetCompression = "zstd"

    @property
    def staged_compression(self) -> str:
        return self.compression

    def prepare(self, run: Run, records: list[Record], merged: pa.Table) -> Prepared:
        schema, place = of_known_types(published_schema(records)), make_place(run)
        return merge(
            run.parts, records, merged, schema, place, file_prefix(run), PART, self.compression, self.target_file_size
        )
