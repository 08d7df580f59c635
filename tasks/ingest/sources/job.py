"""The published rows of another job, of the same partition. Columns out: the published ones, in their types.

`row_id` and `uri` are the published ones too, so that a row keeps its name along a chain of jobs. A row that cannot be
read gets its published file and its number as the name (`path#n`). The other job's partition column is left out. All
rows are of one publish: the manifest names its generation, and the receipt of that generation lists the files.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, PrivateAttr

from overnight.tasks.config.settings import Settings
from overnight.tasks.errors import JobError, shortened
from overnight.tasks.ingest.folder_source import folder_columns, with_folder_columns
from overnight.tasks.ingest.listing.upstream import Upstream
from overnight.tasks.ingest.source import FileSource, Source
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.lance import DATA, Lance
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.rows import blocks
from overnight.tasks.rows.published_text import as_written, carriers, published_types, restored
from overnight.tasks.storage.location import File

TABLES = ("parquet", "delta", "iceberg")  # the files of each are Parquet
READERS: dict[str, type[FileSource]] = {
    **dict.fromkeys(TABLES, Parquet),
    "csv": Csv,
    "jsonl": Jsonl,
    "lance": Lance,
}
NAMED = 3
NO_TYPES: Mapping[str, pa.DataType] = {}
# How the sink writes texts: in CSV an empty text has quotes and a null has none. JSON has the words NaN and Infinity.
TEXTS: Mapping[str, Mapping[str, Any]] = {"csv": {"null_values": [""]}, "jsonl": {"allow_nan": True}}
UNREADABLE = "zstd"  # the compression of text files that no source reads


class WaitForPublish(Settings):
    """The time to wait until the other job has published the partition."""

    timeout_minutes: Annotated[float, Field(gt=0, description="After this time the run fails.")] = 60.0


class JobRows(Source):
    """The rows that another job published for the same partition."""

    kind: Literal["job"] = "job"
    job: Annotated[
        str, Field(min_length=1, examples=["orders.yaml"], description="The other job's file; ${ENV_VAR} expands.")
    ]
    on_changed: Annotated[
        Literal["quarantine", "fail"],
        Field(description="If the partition is published again while it is read: quarantine rows, or fail the run."),
    ] = "fail"
    wait_for: Annotated[
        WaitForPublish | None, Field(description="Wait until the partition is published; null: fail instead.")
    ] = None

    operational: ClassVar[tuple[str, ...]] = ("job", "wait_for")
    located_by: ClassVar[str] = "job"

    _upstream: Upstream | None = PrivateAttr(None)
    _generations: dict[str, str] = PrivateAttr(default_factory=dict)  # by partition
    _table_version: int | None = PrivateAttr(None)

    def reading(self, upstream: Upstream) -> Self:
        """Return a copy that reads the job `upstream`. Raise `JobError` if no source can read the sink of that job."""
        if upstream.sink_kind not in READERS:
            hint = " Read the table with kind: sql." if upstream.sink_kind == "sql" else ""
            raise JobError(
                f"source.job: expected a job with a sink of kind {', '.join(READERS)}, found kind: "
                f"{upstream.sink_kind} in {upstream.job_file}.{hint}"
            )
        if upstream.sink_kind in TEXTS and upstream.compression == UNREADABLE:
            raise JobError(
                f"source.job: expected text files with compression none or gzip, found {UNREADABLE} in the sink of "
                f"{upstream.job_file}."
            )
        if upstream.shorter and upstream.sink_kind not in TABLES:
            raise JobError(
                f"source.job: expected a job with a sink of kind {', '.join(TABLES)}, because a partition reads "
                f"several of it, found kind: {upstream.sink_kind} in {upstream.job_file}."
            )
        source = self.model_copy()
        source._upstream = upstream
        return source

    @property
    def upstream(self) -> Upstream:
        """Return the job whose rows are read. Raise `JobError` if no job was set by `reading`."""
        if self._upstream is None:
            raise JobError(f"source.job: expected a job file that was loaded, found only its name, {self.job}.")
        return self._upstream

    @property
    def is_dated(self) -> bool:
        """Return True if the other job has one partition per day. This source then has the same partitions."""
        return self._upstream is not None and self._upstream.is_dated

    def content_settings(self, *but: str) -> dict[str, Any]:
        """Return the settings that change results, without `but`. The other job counts by its name, not by its file."""
        return {**super().content_settings(*but), "job": self.upstream.name}

    def place(self, partition: str) -> str:
        names = shortened(self.upstream.names(partition), NAMED)
        return f"the partition {names} of the job {self.upstream.name}"

    def is_local(self, partition: str) -> bool:
        return self._reader().is_local(partition)

    def lacking(self, partition: str) -> str:
        """Return an empty string if the partition is published, otherwise a sentence on what was expected and found."""
        return next(filter(None, map(self.upstream.lacking, self.upstream.names(partition))), "")

    def snapshot(self, partition: str) -> str:
        if self.upstream.shorter:
            names = self.upstream.names(partition)
            return json.dumps({name: self.upstream.receipt(name)["generation"] for name in names})
        receipt = self.upstream.receipt(partition)
        return json.dumps({"generation": receipt["generation"], "table_version": receipt.get("table_version")})

    def at(self, snapshot: str) -> Self:
        version, source = json.loads(snapshot), self.model_copy()
        if self.upstream.shorter:
            source._generations = version
        else:
            source._generations = {"": version["generation"]}
            source._table_version = version["table_version"]
        return source

    def _generation(self, name: str) -> str:
        return self._generations.get(name if self.upstream.shorter else "", "")

    def files(self, partition: str) -> Iterator[File]:
        if self.upstream.sink_kind != "lance":
            for name in self.upstream.names(partition):
                yield from self.upstream.files(name, self._generation(name))
            return
        source = self if self._generations else self.at(self.snapshot(partition))
        receipt = source.upstream.receipt(partition, source._generation(partition))
        for file in source._reader().files(partition):
            if f"{DATA.lstrip('/')}{file.path}" in receipt["files"]:
                yield file

    def units(self, files: list[File]) -> pa.Table:
        return self._reader().units(files)

    def common_schema(self, units: pa.Table, partition: str = "all") -> pa.Schema | None:
        if self.upstream.sink_kind not in TEXTS:
            return self._reader().common_schema(units, partition)
        kinds = published_types(self.upstream.receipt(partition, self._generation(partition)))
        schema = self._reader(kinds).common_schema(units, partition)
        return schema and pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in schema])

    def full_schema(self, first: pa.Schema | None, seen: Iterable[pa.Schema]) -> pa.Schema | None:
        return self._reader().full_schema(first, seen)

    def rows(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        """Yield the rows. Those of several partitions get the columns and the beginnings of row ids of their own."""
        paths = dict(zip(units["unit"].to_pylist(), units["path"].to_pylist(), strict=True))
        for block in self.read(units, schema):
            yield self._apart(block, paths) if self.upstream.shorter else block

    def columns_in_settings(self) -> list[str]:
        """Return the partition columns of the other job that this one does not have."""
        if not self.upstream.shorter:
            return []
        return [name for name in self.upstream.partition_column.split(",") if name not in self.upstream.shorter.columns]

    def _apart(self, block: pa.Table, paths: dict[int, str]) -> pa.Table:
        if blocks.LIVE not in block["__state"][:1].to_pylist():
            return block
        units = pc.unique(block["__unit"])
        prefixes = ["/".join(map(str, folder_columns(paths[unit]).values())) for unit in units.to_pylist()]
        prefix = pa.array(prefixes, pa.string()).take(pc.index_in(block["__unit"], units))
        names = pc.binary_join_element_wise(prefix, block["row_id"].cast(pa.string()), "/")
        block = block.set_column(block.column_names.index("row_id"), "row_id", names)
        return with_folder_columns(block, paths, set(), self.columns_in_settings())

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        extra = self.upstream.partition_column.split(",")
        units = units.append_column("published", pa.array([True] * len(units)))
        kinds, reader = dict[str, pa.DataType](), self._reader()
        if schema is not None and self.upstream.sink_kind in TEXTS:
            kinds = {field.name: field.type for field in schema if not pa.types.is_nested(field.type)}
            reader = self._reader(kinds)
            schema = as_written(schema, kinds, self.upstream.sink_kind)
        for file_block in reader.read(units, schema):
            block = restored(file_block, kinds)
            names = [name for name in extra if self.is_dated and name in block.column_names]
            yield block.drop_columns(names)

    def lost(self, unit: dict[str, Any], error: Exception) -> Iterator[pa.Table]:
        yield from self._reader().lost(unit, error)

    def _reader(self, kinds: Mapping[str, pa.DataType] = NO_TYPES) -> FileSource:
        """Return the source of the published files. `kinds` has the published types of columns of text files."""
        kind = READERS[self.upstream.sink_kind]
        settings: dict[str, Any] = {}
        if kind is Lance:
            settings = {"version": self._table_version}
        elif self.upstream.sink_kind in TEXTS:
            settings = {"types": carriers(kinds, self.upstream.sink_kind), **TEXTS[self.upstream.sink_kind]}
        return kind(path=self.upstream.sink, on_changed=self.on_changed, **settings)
