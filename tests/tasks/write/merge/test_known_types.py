"""A column without a value in a run: the table stays readable, and nothing is guessed."""

from pathlib import Path
from typing import Any

import lance
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.state.run import Run, write_json
from overnight.tasks.write.checks.column_statistics import summary
from overnight.tasks.write.checks.null_and_constant import null_violations, unknown_columns
from overnight.tasks.write.checks.settings import Checks
from overnight.tasks.write.merge.known_types import (
    columns_left_out,
    of_known_types,
    typed,
    warnings_of_left_out,
)
from overnight.tasks.write.publish.publish import prepared, publish
from tests.contracts.sinks.publications import NO_ERRORS, holding, numbered, receipt_of, records_of, sink_of, stage

NULL, TEXTS = pa.nulls(2), ["late", "r"]


def publish_day(run: Run, columns: dict[str, Any], known: pa.Schema | None = None, kind: str = "parquet") -> list[str]:
    """Publishes as a run does; the warnings about columns that are left out."""
    stage(run, {"id": [1, 2], **columns})
    sink = sink_of(kind, "-")
    records, merged = records_of(run)
    records = typed(records, [known], run)
    with holding(run) as held, prepared(held, sink, records, merged) as ready:
        warnings = warnings_of_left_out(records, ready)
        publish(held, sink, ready, NO_ERRORS, receipt_of(run, sink, ready))
    return warnings


@pytest.mark.parametrize("kind", ["parquet", "delta"])
@pytest.mark.parametrize("null", [NULL, pa.nulls(2, pa.list_(pa.null()))], ids=["null", "list of null"])
def test_pandas_reads_a_table_of_which_a_day_has_no_value_in_a_column(
    kind: str, null: pa.Array, tmp_path: Path
) -> None:
    values = TEXTS if null is NULL else [TEXTS, []]
    days = [("2026-01-01", null), ("2026-01-02", values), ("2026-01-03", null)]
    for number, (day, column) in enumerate(days):
        warnings = publish_day(numbered(tmp_path, number, day), {"x": column}, kind=kind)
        assert [name in warning for warning in warnings for name in ("'x'",)] == ([True] if number == 0 else []) or (
            kind == "delta"
        )
    if kind == "parquet":
        assert len(pd.read_parquet(tmp_path / "out")) == 6
        last = pd.read_parquet(tmp_path / "out/date=2026-01-03", partitioning=None)
        assert last["x"].isna().all()
        schemas = {path: pq.read_schema(path) for path in (tmp_path / "out").glob("date=*3/*.parquet")}
        assert [schema.field("x").type for schema in schemas.values()] == [pa.array(values).type]


def test_a_day_takes_its_type_from_a_later_one_that_was_published_before(tmp_path: Path) -> None:
    assert publish_day(numbered(tmp_path, 1, "2026-01-02"), {"x": TEXTS}) == []
    assert publish_day(numbered(tmp_path, 2, "2026-01-01"), {"x": NULL}) == []
    assert list(pd.read_parquet(tmp_path / "out")["x"].dropna()) == TEXTS


def test_the_source_and_the_models_say_a_type_before_other_days(tmp_path: Path) -> None:
    known = pa.schema([("x", pa.float32()), ("s", pa.struct([("a", pa.string())]))])
    run = numbered(tmp_path, 1, "2026-01-01")
    assert publish_day(run, {"x": NULL, "s": pa.array([{"a": None}, None])}, known) == []
    [file] = (tmp_path / "out/date=2026-01-01").glob("*.parquet")
    schema = pq.read_schema(file)
    assert (schema.field("x").type, schema.field("s").type) == (pa.float32(), known.field("s").type)


META = pa.struct([("a", pa.int64()), ("notes", pa.null()), ("tags", pa.list_(pa.null()))])
KNOWN = pa.struct([("a", pa.int64())])


@pytest.mark.parametrize("sink", ["parquet", "delta", "lance"])
@pytest.mark.parametrize(
    ("kind", "published", "values"),
    [
        (META, KNOWN, [{"a": 1}, None]),
        (pa.list_(META), pa.list_(KNOWN), [[{"a": 1}, None], []]),
        (pa.struct([("inner", META)]), pa.struct([("inner", KNOWN)]), [{"inner": {"a": 1}}, {"inner": None}]),
    ],
    ids=["struct", "list", "struct in a struct"],
)
def test_only_the_fields_of_a_struct_that_no_row_has_are_left_out_each_with_a_warning(
    sink: str, kind: pa.DataType, published: pa.DataType, values: list[Any], tmp_path: Path, ray_session: None
) -> None:
    column = pa.array(values, kind)
    lacking = pa.array([{"x": None}, None], pa.struct([("x", pa.null())]))
    run = numbered(tmp_path, 1, "2026-01-01")
    warnings = publish_day(run, {"meta": column, "whole": lacking}, kind=sink)
    path = "meta.inner" if pa.types.is_struct(kind) and kind.num_fields == 1 else "meta"
    assert [warning.split("'")[1] for warning in warnings] == [f"{path}.notes", f"{path}.tags", "whole"]
    if sink == "lance":
        table = lance.dataset(str(tmp_path / "out")).to_table()
    else:
        [file] = (tmp_path / "out").glob("date=2026-01-01/*.parquet")
        table = pq.ParquetFile(file).read()
    assert (table["meta"].type, table["meta"].to_pylist()) == (published, values)
    assert "whole" not in table.column_names


def test_a_field_that_another_day_has_gets_its_type_from_there(tmp_path: Path) -> None:
    assert publish_day(numbered(tmp_path, 1, "2026-01-01"), {"meta": [{"a": 1, "notes": "late"}] * 2}) == []
    assert publish_day(numbered(tmp_path, 2, "2026-01-02"), {"meta": [{"a": 1, "notes": None}] * 2}) == []
    [file] = (tmp_path / "out/date=2026-01-02").glob("*.parquet")
    assert pq.ParquetFile(file).read()["meta"].to_pylist() == [{"a": 1, "notes": None}] * 2


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


def test_another_job_s_partition_says_nothing(tmp_path: Path) -> None:
    publish_day(numbered(tmp_path, 1, "2026-01-01", job="other"), {"x": TEXTS})
    assert "'x'" in publish_day(numbered(tmp_path, 2, "2026-01-02"), {"x": NULL})[0]


def test_a_published_file_that_is_gone_says_nothing(tmp_path: Path) -> None:
    run = numbered(tmp_path, 1, "2026-01-01")
    write_json(run.ledger / "receipt.json", {"job": run.job, "files": ["date=2026-01-01/gone.parquet"]})
    assert publish_day(numbered(tmp_path, 2, "2026-01-02"), {"x": NULL})


def test_checks_see_a_column_that_is_left_out_as_null(tmp_path: Path) -> None:
    run = numbered(tmp_path, 1)
    stage(run, {"x": NULL})
    records, merged = records_of(run)
    with holding(run) as held, prepared(held, sink_of("parquet", "-"), records, merged) as ready:
        columns = summary({**ready.columns, **columns_left_out(records, ready)}, {})
    checks = Checks(max_null={"x": 0.5})
    assert list(unknown_columns(checks, columns)) == []
    assert "x" in next(iter(null_violations(checks, columns)))
