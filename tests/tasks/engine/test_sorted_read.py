"""A read that sorts: rows with a common beginning stand together, and each keeps its identity."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from overnight.tasks.engine import sorted_read
from overnight.tasks.engine.datasource import OrderedRead
from overnight.tasks.engine.sorted_read import SortedRead
from overnight.tasks.errors import ContractError
from overnight.tasks.ingest.reading.read_units import Read
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.rows import blocks
from tests.tasks.engine.test_datasource import lay_out

TEXTS = ["pear 1", "apple", "pear 2 is long", "", "apple pie"]


def read(folder: Path, by: str, settled: dict[int, list[int]] | None = None) -> pa.Table:
    """Return the live rows of two files, read by one task and sorted."""
    (folder / "in").mkdir(exist_ok=True)
    for file in range(2):
        lines = [f'{file},"{text}"' for text in TEXTS]
        (folder / "in" / f"{file}.csv").write_text("\n".join(["file,text", *lines, "too,many,values"]) + "\n")
    source = Csv(path=str(folder / "in"))
    run, units = lay_out(folder, source, settled or {}, blocks=1)
    [task] = OrderedRead(SortedRead(Read(source, source.common_schema(units)), by), run).get_read_tasks(1)
    table = pa.concat_tables(task(), promote_options="permissive")
    assert pc.sum(pc.equal(table["__state"], blocks.QUARANTINED)).as_py() == (1 if settled else 2)
    return blocks.live_block(table)


def test_rows_are_sorted_by_a_column_or_an_expression_over_the_files_of_a_task(tmp_path: Path) -> None:
    texts = read(tmp_path, "text")["text"].to_pylist()
    assert texts == sorted(TEXTS * 2)
    texts = read(tmp_path, "-length(nullif(text, ''))")["text"].to_pylist()
    assert texts[::2] == ["pear 2 is long", "apple pie", "pear 1", "apple", ""], "rows without a value come last"
    assert read(tmp_path, "cast(text as integer)")["row_id"].to_pylist()[0] == "0.csv#0", "no row has a value"


def test_each_row_keeps_its_id_and_a_resumed_run_reads_the_rows_that_are_left(tmp_path: Path) -> None:
    rows = read(tmp_path, "text")
    named = dict(zip(rows["row_id"].to_pylist(), rows["text"].to_pylist(), strict=True))
    assert named == {f"{file}.csv#{row}": text for file in range(2) for row, text in enumerate(TEXTS)}
    assert rows["__row"].to_pylist() == [int(name.partition("#")[2]) for name in rows["row_id"].to_pylist()]
    rest = read(tmp_path, "text", settled={0: [0, 2, 3, 4], 1: [0, 6]})
    assert rest["row_id"].to_pylist() == ["0.csv#4", "0.csv#2"]


def test_a_task_sorts_a_window_of_rows_and_never_waits_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_read, "WINDOW_BYTES", 1)
    assert read(tmp_path, "text")["text"].to_pylist() == sorted(TEXTS) * 2


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("[text]", r"shuffle\.by: '\[text\]': expected numbers, texts or times, which have an order, found list"),
        ("txt", r"shuffle\.by: 'txt' needs a column 'txt' \(did you mean text\?\); the columns are row_id, uri, file"),
    ],
)
def test_rows_that_have_no_order_end_the_read(by: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=message):
        read(tmp_path, by)
