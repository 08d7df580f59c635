"""The rows of both sides: the same drawn ones, which nothing keeps, or published ones."""

from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from overnight.flows.compare.comparison import compare_published
from overnight.flows.compare.sides import Drawing, both_ways, published_sides
from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.ledger.results import Results
from overnight.tasks.errors import OvernightError
from tests.overnight.cli.results_on_disk import write_job, write_result

STEP = {"kind": "derive_columns", "columns": {"size": "CASE WHEN n > 10 THEN 'large' ELSE 'small' END"}}


def csv_job(folder: Path, *more: dict, lines: int = 40, **keys: object) -> Job:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in/a.csv").write_text("n\n" + "".join(f"{number}\n" for number in range(lines)))
    source = {"kind": "csv", "path": str(folder / "in")}
    job = {"name": "j", "source": source, "preprocess": [STEP, *more], "sink": {"kind": "parquet", "path": "out"}}
    (folder / "job.yaml").write_text(yaml.safe_dump(job | keys))
    return load_job(folder / "job.yaml")


def test_both_jobs_compute_the_same_drawn_rows_and_more_of_them_later(tmp_path: Path) -> None:
    doubled = {"kind": "derive_columns", "columns": {"twice": "n * 2"}}
    a, b = csv_job(tmp_path), csv_job(tmp_path, doubled)
    with both_ways([("a", a), ("b", b)], "all", Drawing(30, seed=3)) as ways:
        ways.extend(10)
        first = ways.a.table["row_id"].to_pylist()
        assert (len(first), ways.b.table["row_id"].to_pylist(), ways.total) == (10, first, 40)
        ways.extend(99)
    ids = ways.a.table["row_id"].to_pylist()
    assert (len(ids), len(set(ids)), ids[:10]) == (30, 30, first)
    assert ways.b.table["twice"].to_pylist() == [2 * n for n in ways.a.table["n"].to_pylist()]
    assert ways.a.record["columns"]["size"]["classes"].keys() == {"large", "small"}
    assert not (tmp_path / "out").exists()


def test_rows_that_fail_are_quarantined_on_their_side_and_a_wrong_setting_fails(tmp_path: Path) -> None:
    failing = {"kind": "derive_columns", "columns": {"number": "CAST(size AS INTEGER)"}}
    with both_ways([("a", csv_job(tmp_path)), ("b", csv_job(tmp_path, failing))], "all", Drawing(5)) as ways:
        ways.extend(5)
    assert (len(ways.a.table), len(ways.b.table), len(ways.b.quarantined)) == (5, 0, 5)
    unknown = {"kind": "derive_columns", "columns": {"x": "nothing + 1"}}
    jobs = [("a", csv_job(tmp_path)), ("b", csv_job(tmp_path, unknown))]
    with pytest.raises(OvernightError, match="nothing"), both_ways(jobs, "all", Drawing(5)) as ways:
        ways.extend(5)


def test_prices_make_a_cost_of_a_thousand_rows(tmp_path: Path) -> None:
    job = csv_job(tmp_path, price_per_cpu_hour=3600.0)
    with both_ways([("a", job), ("b", job)], "all", Drawing(40)) as ways:
        ways.extend(40)
    assert ways.a.cost_per_1000 == pytest.approx(1000 * ways.a.record["seconds"] / 40)


def test_published_rows_are_those_of_both_results_and_drawn_if_there_are_many(tmp_path: Path) -> None:
    write_job(tmp_path)
    ids = [f"a#{number}" for number in range(100)]
    write_result(tmp_path, "2026-01-01", pa.table({"row_id": ids, "label": ["x"] * 100}))
    write_result(tmp_path, "2026-01-02", pa.table({"row_id": ids[10:], "label": ["y"] * 90}), {"a#0": "bad"})
    job = load_job(tmp_path / "job.yaml")
    results = Results(job, "job.yaml", job.published)
    pair = results.result("2026-01-01"), results.result("2026-01-02")
    a, b, total = published_sides(*pair, Drawing(7))
    assert (total, len(a.table), sorted(a.table["row_id"].to_pylist())) == (
        90,
        7,
        sorted(b.table["row_id"].to_pylist()),
    )
    assert (a.more_rows, b.more_rows) == (10, 0)
    assert compare_published(*pair, Drawing(7)).only_a.quarantined == 1
    assert b.quarantined == {"a#0": "ValueError: bad"}
    assert len(published_sides(*pair, Drawing())[0].table) == 90
