"""Rows that are drawn at random: each as likely as any other, the same for the same seed."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.ingest.reading.drawn_rows import DrawnRows, draw_rows
from overnight.tasks.ingest.source import Source
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.ingest.sources.text import Text
from tests.tasks.runs import make_run


def drawn(folder: Path, source: Source, most: int, seed: int = 0) -> DrawnRows:
    return draw_rows(make_run(folder / f"run-{seed}-{most}", "all"), source, most, seed)


def values(rows: DrawnRows, first: int, stop: int) -> list[int]:
    return [value for block in rows.read(first, stop) for value in block["x"].to_pylist()]


@pytest.fixture
def tables(tmp_path: Path) -> Parquet:
    (tmp_path / "in").mkdir()
    for number, start in enumerate((0, 50)):
        table = pa.table({"x": range(start, start + 50)})
        pq.write_table(table, tmp_path / f"in/{number}.parquet", row_group_size=20)
    return Parquet(path=str(tmp_path / "in"))


def test_only_the_drawn_rows_of_row_groups_are_read_and_each_once(tables: Parquet, tmp_path: Path) -> None:
    rows = drawn(tmp_path, tables, 30)
    assert rows.total == 100
    first, rest = values(rows, 0, 10), values(rows, 10, 30)
    assert (len(first), len({*first, *rest})) == (10, 30)
    assert {*first, *rest} != {*range(30)}
    assert sorted(values(drawn(tmp_path, tables, 1000), 0, 1000)) == [*range(100)]


def test_a_seed_draws_the_same_rows_again_and_another_seed_others(tables: Parquet, tmp_path: Path) -> None:
    draws = [
        values(drawn(tmp_path / folder, tables, 20, seed), 0, 20) for folder, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert draws[0] == draws[1] != draws[2]


def test_every_row_is_as_likely_as_any_other(tables: Parquet, tmp_path: Path) -> None:
    counts = np.zeros(100, int)
    for seed in range(60):
        counts[values(drawn(tmp_path, tables, 20, seed), 0, 20)] += 1
    assert counts.sum() == 1200
    assert ((counts - 12) ** 2 / 12).sum() < 124  # chi-squared, 99 degrees of freedom, 95 %


def test_a_format_without_row_counts_is_counted_and_files_of_one_row_are_drawn(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("x\n" + "".join(f"{n}\n" for n in range(7)))
    (tmp_path / "in/b.csv").write_text("x\n" + "".join(f"{n}\n" for n in range(7, 12)))
    rows = drawn(tmp_path, Csv(path=str(tmp_path / "in")), 100)
    assert (rows.total, sorted(values(rows, 0, 100))) == (12, [*range(12)])
    for number in range(9):
        (tmp_path / f"in/{number}.txt").write_text(str(number))
    texts = [block["row_id"].to_pylist() for block in drawn(tmp_path, Text(path=str(tmp_path / "in")), 4, 5).read(0, 4)]
    assert len({name for names in texts for name in names}) == 4
