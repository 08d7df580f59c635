"""The JSON Lines sink: `<path>/date=D/part-*.jsonl`, one object per row, published by `hive_files.py`.

With `compression` the names end in `.jsonl.gz` or `.jsonl.zst`. `json_values.py` defines the form of values.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import BinaryIO, Literal

import pyarrow as pa

from overnight.tasks.rows.published_text import carriers, inferred
from overnight.tasks.write.merge.json_values import json_lines
from overnight.tasks.write.sink import ROWS_AT_ONCE
from overnight.tasks.write.sinks.text_files import TextFiles
from overnight.tasks.write.stream.unwritable_rows import refuse_far_times


class JsonlSink(TextFiles):
    """Hive-partitioned JSON Lines on any filesystem."""

    kind: Literal["jsonl"] = "jsonl"

    def take(self, table: pa.Table) -> None:
        super().take(table)
        refuse_far_times(table)

    @staticmethod
    @contextmanager
    def writer(file: BinaryIO, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
        yield lambda table: file.writelines(json_lines(table))

    @staticmethod
    def reader(file: BinaryIO, kinds: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
        types = carriers(kinds, "jsonl")
        lines = iter(io.TextIOWrapper(file, "utf-8", newline="\n"))
        while rows := list(map(json.loads, islice(lines, ROWS_AT_ONCE))):
            columns = {}
            for name in rows[0]:
                values = [row[name] for row in rows]
                columns[name] = pa.array(values, types[name]) if name in types else inferred(values)
            yield pa.table(columns)
