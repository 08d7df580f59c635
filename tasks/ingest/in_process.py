"""The first rows of a source, or rows drawn at random, in the process that calls it, without Prefect and Ray."""

import tempfile
from dataclasses import dataclass

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.ingest.listing.list_files import require_arrival
from overnight.tasks.ingest.listing.take_manifest import first_units, take_manifest
from overnight.tasks.ingest.reading.drawn_rows import DrawnRows, draw_rows
from overnight.tasks.ingest.reading.read_units import read_units
from overnight.tasks.ingest.source import FileSource, Source
from overnight.tasks.ingest.sources.job import JobRows
from overnight.tasks.rows import rebatch
from overnight.tasks.rows.blocks import END, data_name
from overnight.tasks.state.manifest import COUNTS, WARNINGS, read_manifest
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location

__all__ = ["DrawnRows", "FirstRows", "Inputs", "count_inputs", "draw_rows", "first_columns", "read_first"]


@dataclass(frozen=True)
class FirstRows:
    """The first rows of a source as one `block`, and the columns and types with which they were read, as `schema`.

    `schema` is None if each file determines its own. `warnings` are sentences about the schema.
    """

    block: pa.Table
    schema: pa.Schema | None
    warnings: tuple[str, ...]


def read_first(run: Run, source: Source, rows: int) -> FirstRows:
    """Return the first `rows` rows of the run's partition, in the order of the listing; all rows if there are fewer."""
    if isinstance(source, FileSource) and source.wait_for:
        require_arrival(source, source.wait_for, run.partition)
    source, units, schema = first_units(source, run.partition, rows)
    nulls = pa.nulls(len(units), PENDING.field("settled").type)
    pending = units.append_column("settled", nulls).cast(PENDING)
    block = rebatch.joined(read_units(pending, source, run, schema))
    warnings = orjson.loads(((schema.metadata if schema else None) or {}).get(WARNINGS, b"[]"))
    return FirstRows(block.filter(pc.not_equal(block["__state"], END)), schema, tuple(warnings))


@dataclass(frozen=True)
class Inputs:
    """The rows of a partition, None if only reading shows them, and its bytes."""

    rows: int | None
    size: int


def count_inputs(source: Source, partition: str) -> Inputs:
    """Return what a listing of the partition shows. This lists all of its inputs."""
    with tempfile.TemporaryDirectory(prefix="overnight-listing-") as folder:
        manifest = Location(folder) / "manifest"
        take_manifest(manifest, source, partition, None)
        units, _ = read_manifest(manifest, COUNTS)
    rows = None if units["rows"].null_count else int(pc.sum(units["rows"]).as_py() or 0)
    return Inputs(rows, int(pc.sum(units["size"]).as_py() or 0))


def first_columns(source: Source, partition: str) -> list[str] | None:
    """Return the names of the columns of the first inputs, as a run reads them; None if only the rows show them."""
    source, _, schema = first_units(source, partition, 1)
    if schema is None:
        return None
    if isinstance(source, JobRows):  # its tables have ids of Overnight
        return list(schema.names)
    return list(map(data_name, schema.names))
