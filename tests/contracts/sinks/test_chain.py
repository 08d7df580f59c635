"""What one job publishes, a second one reads with `kind: job` as it was."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from overnight.tasks.ingest.listing.upstream import Upstream
from overnight.tasks.ingest.sources.job import JobRows
from overnight.tasks.rows import blocks
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.state.run import Run
from tests.contracts.sinks.adapters import Adapter
from tests.contracts.sinks.publications import numbered, publish_parts
from tests.contracts.sinks.suite import SINKS
from tests.contracts.sinks.test_values import COLUMNS, staged
from tests.contracts.sinks.values import ROWS, canonical, facts

UNREAD = {
    "images": "a job names image files by their path, which the sink's index has",
    "sql": "a job reads its table with kind: sql",
}
# The types whose values a text file has as text or JSON; docs/how-to/etl.md says so.
STAY_TEXT = {"uuid", "json"}


def second_job(run: Run, leaf: Adapter) -> pa.Table:
    """The rows that a job reads which names the job of `run`."""
    ledger, sink = run.state.template, run.sink.template
    upstream = Upstream(run.job, "first.yaml", leaf.kind, sink, ledger, run.partition_column, is_dated=True)
    source = JobRows(job="first.yaml").reading(upstream)
    source = source.at(source.snapshot(run.partition))
    units = source.units(list(source.files(run.partition)))
    schema = source.common_schema(units, run.partition)
    pending = units.append_column("settled", pa.nulls(len(units), pa.list_(pa.int64()))).cast(PENDING)
    read = list(source.read(pending, schema))
    assert [error for block in read for error in block["__error_message"].to_pylist() if error] == []
    tables = [blocks.visible(block.filter(pa.array(block["__state"].to_numpy() == blocks.LIVE))) for block in read]
    found = pa.concat_tables([table for table in tables if len(table)]).sort_by("row_id")
    for field in schema or ():
        if field.name != run.partition_column:
            assert found.schema.field(field.name).type == field.type, field.name
    return found


@SINKS.promise("a second job (kind: job) reads the values and the types that the first one published", **UNREAD)
def test_a_second_job_reads_what_the_first_one_published(leaf: Adapter, tmp_path: Path) -> None:
    sink, run = leaf.sink(tmp_path), numbered(tmp_path, 1)
    refused = {*leaf.refused, *leaf.lost_rows}
    known = {name: found for name, found in COLUMNS.items() if name not in refused}
    rows, _ = staged(leaf, sink, tmp_path, known)
    published = publish_parts(run, sink, {name: rows[name] for name in rows.column_names})
    assert published
    found = second_job(run, leaf)
    assert found["row_id"].to_pylist() == [f"a#{row}" for row in range(ROWS)]
    for name, column in known.items():
        kind = pa.binary() if name == "uuid" else column.type
        assert [canonical(cell, kind) for cell in found[name]] == facts(column), name
    if leaf.kind in ("csv", "jsonl"):
        flat = {name for name in known if not pa.types.is_nested(rows[name].type)} - STAY_TEXT - {"bool8", "tensor"}
        wrong = {name: (found[name].type, rows[name].type) for name in flat if not alike(found[name], rows[name])}
        assert wrong == {}


def alike(found: Any, staged_column: Any) -> bool:
    """A staged Parquet file has milliseconds in the place of seconds, and the type of a dictionary's values."""
    kind = staged_column.type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    in_parquet = {pa.time32("s"): pa.time32("ms"), pa.date64(): pa.date32()}
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        kind = pa.timestamp("ms", kind.tz)
    return bool(found.type == in_parquet.get(kind, kind))


def test_common_readers_read_the_text_files_without_settings(tmp_path: Path) -> None:
    """pandas and pyarrow read NaN and infinity in JSON Lines, and pyarrow tells null from an empty text in CSV."""
    from tests.contracts.sinks.adapters import ADAPTERS

    columns = {"text": ["", None, "x"], "score": [float("nan"), None, 1.5], "v": [[float("inf")], None, []]}
    for kind in ("csv", "jsonl"):
        run, leaf = numbered(tmp_path / kind, 1), ADAPTERS[kind]
        (file,) = publish_parts(run, leaf.sink(tmp_path / kind), columns)
        path = f"{run.sink.uri}/{file}"
        if kind == "csv":
            options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
            assert pyarrow.csv.read_csv(path, convert_options=options)["text"].to_pylist() == ["", None, "x"]
        else:
            found = pyarrow.json.read_json(path)
            assert facts(found["score"]) == ["nan", None, "1.5"]
            assert facts(found["v"]) == [["inf"], None, []]
