"""A column without a value in a run: the table stays readable, and nothing is guessed."""

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.state.run import Run, write_json
from overnight.tasks.write.checks.column_statistics import summary
from overnight.tasks.write.checks.run_checks import null_violations, unknown_columns
from overnight.tasks.write.checks.settings import Checks
from overnight.tasks.write.merge.known_types import (
    of_known_types,
    statistics_of_left_out,
    warnings_of_left_out,
    with_known_types,
)
from overnight.tasks.write.publish.publish import prepared, publish
from tests.contracts.sinks.adapters import ADAPTERS
from tests.contracts.sinks.publications import NO_ERRORS, holding, numbered, receipt_of, records_of, sink_of, stage

NULL, TEXTS = pa.nulls(2), ["late", "r"]
FIRST, SECOND = "2026-01-01", "2026-01-02"


def publish_day(run: Run, columns: dict[str, Any], known: pa.Schema | None = None, kind: str = "parquet") -> list[str]:
    """Publish as a run does; the columns and fields that are left out, as the warnings name them."""
    stage(run, columns)
    sink = sink_of(kind, "-")
    records, merged = records_of(run)
    records = with_known_types(records, [known], run)
    with holding(run) as held, prepared(held, sink, records, merged) as ready:
        warnings = warnings_of_left_out(records, ready)
        publish(held, sink, ready, NO_ERRORS, receipt_of(run, sink, ready))
    return [warning.split("'")[1] for warning in warnings]


def published(run: Run) -> pa.Table:
    [file] = (Path(run.sink.uri) / f"date={run.partition}").glob("*.parquet")
    return pq.ParquetFile(file).read()


@pytest.mark.parametrize(
    ("null", "values", "unknown"),
    [
        (NULL, pa.array(TEXTS), "x"),
        (pa.nulls(2, pa.list_(pa.null())), pa.array([TEXTS, []]), "x"),
        (pa.array([{"a": 1, "notes": None}] * 2), pa.array([{"a": 1, "notes": "late"}] * 2), "x.notes"),
    ],
)
def test_a_day_takes_its_type_from_one_that_was_published_before(
    null: pa.Array, values: pa.Array, unknown: str, tmp_path: Path
) -> None:
    days = [(FIRST, null), (SECOND, values), ("2026-01-03", null)]
    left_out = [publish_day(numbered(tmp_path, n, day), {"x": x}) for n, (day, x) in enumerate(days)]
    assert left_out == [[unknown], [], []]
    last = published(numbered(tmp_path, 2, "2026-01-03"))["x"]
    assert (last.type, last.to_pylist()) == (values.type, null.to_pylist())
    if unknown == "x":
        assert len(pd.read_parquet(tmp_path / "out")) == 6


def test_a_day_takes_its_type_from_a_later_one_that_was_published_before(tmp_path: Path) -> None:
    assert publish_day(numbered(tmp_path, 1, SECOND), {"x": TEXTS}) == []
    assert publish_day(numbered(tmp_path, 2, FIRST), {"x": NULL}) == []
    assert list(pd.read_parquet(tmp_path / "out")["x"].dropna()) == TEXTS


def test_the_source_and_the_models_say_a_type_before_other_days(tmp_path: Path) -> None:
    known = pa.schema([("x", pa.float32()), ("s", pa.struct([("a", pa.string())]))])
    run = numbered(tmp_path, 1)
    assert publish_day(run, {"x": NULL, "s": pa.array([{"a": None}, None])}, known) == []
    assert published(run).select(["x", "s"]).schema == known


META = pa.struct([("a", pa.int64()), ("notes", pa.null()), ("tags", pa.list_(pa.null()))])
KNOWN = pa.struct([("a", pa.int64())])


@pytest.mark.parametrize("sink", ["parquet", "delta", "lance"])
@pytest.mark.parametrize(
    ("path", "kind", "known", "values"),
    [
        ("meta", META, KNOWN, [{"a": 1}, None]),
        ("meta", pa.list_(META), pa.list_(KNOWN), [[{"a": 1}, None], []]),
        ("meta.in", pa.struct([("in", META)]), pa.struct([("in", KNOWN)]), [{"in": {"a": 1}}, {"in": None}]),
    ],
)
def test_only_the_fields_of_a_struct_that_no_row_has_are_left_out_each_with_a_warning(
    sink: str, path: str, kind: pa.DataType, known: pa.DataType, values: list[Any], tmp_path: Path
) -> None:
    run = numbered(tmp_path, 1)
    whole = pa.array([{"x": None}, None], pa.struct([("x", pa.null())]))
    left_out = publish_day(run, {"meta": pa.array(values, kind), "whole": whole}, kind=sink)
    assert left_out == [f"{path}.notes", f"{path}.tags", "whole"]
    rows = ADAPTERS[sink].read(run, sink_of(sink, "-"), [])
    assert "whole" not in rows
    assert [cell.as_py() for cell in rows["meta"]] == values
    assert rows["meta"][0].type == known


def test_a_map_and_lists_of_any_kind_keep_what_is_known() -> None:
    kinds = {
        "map": (pa.map_(pa.string(), META), pa.map_(pa.string(), KNOWN)),
        "pair": (pa.list_(META, 2), pa.list_(KNOWN, 2)),
        "large": (pa.large_list(META), pa.large_list(KNOWN)),
        "whole": (pa.map_(pa.string(), KNOWN), pa.map_(pa.string(), KNOWN)),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in kinds.items()])
    schema = schema.append(pa.field("nothing", pa.map_(pa.string(), pa.null())))
    assert of_known_types(schema) == pa.schema([(name, known) for name, (_, known) in kinds.items()])


def test_another_job_s_partition_and_a_published_file_that_is_gone_say_nothing(tmp_path: Path) -> None:
    publish_day(numbered(tmp_path, 1, FIRST, job="other"), {"x": TEXTS})
    run = numbered(tmp_path, 2, "2026-01-03")
    write_json(run.ledger / "receipt.json", {"job": run.job, "files": ["date=2026-01-03/gone.parquet"]})
    assert publish_day(numbered(tmp_path, 3, SECOND), {"x": NULL}) == ["x"]


def test_checks_see_a_column_that_is_left_out_as_null(tmp_path: Path) -> None:
    run = numbered(tmp_path, 1)
    stage(run, {"x": NULL})
    records, merged = records_of(run)
    with holding(run) as held, prepared(held, sink_of("parquet", "-"), records, merged) as ready:
        columns = summary({**ready.columns, **statistics_of_left_out(records, ready)}, {})
    checks = Checks(max_null={"x": 0.5})
    assert list(unknown_columns(checks, columns)) == []
    assert "x" in next(iter(null_violations(checks, columns)))
