"""Late, changed and deleted files of a published partition: only their rows run, and the result is that of all rows."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests import jobs
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, published, quarantine

FILES = 400
MODEL = """
class Measure:
    def __init__(self, log):
        self.log = log

    def __call__(self, batch):
        with open(self.log, "a") as log:
            log.writelines(f"{row}\\n" for row in batch["row_id"].tolist())
        return {"length": [len(text) for text in batch["text"]]}
"""


def job_of(folder: Path, sink: str = "out", **settings: Any) -> dict[str, Any]:
    (WORKER_PATH / "late_models.py").write_text(MODEL)
    model = {"kind": "python", "target": "late_models:Measure", "kwargs": {"log": str(folder / "log")}}
    return jobs.job(
        folder,
        name=sink,
        source={"kind": "text", "path": f"{folder}/in", **settings},
        inference=[model | {"batch_size": 16}],
        checks={"max_quarantined": 0.5},
        sink={"kind": "parquet", "path": f"{folder}/{sink}"},
    )


def write(folder: Path, names: Iterator[str] | list[str], text: str) -> None:
    (folder / "in").mkdir(exist_ok=True)
    for name in names:
        (folder / f"in/{name}.txt").write_text(f"{text} {name}")


def seen(folder: Path) -> set[str]:
    """Return the rows that the model has seen since the last call."""
    log = folder / "log"
    rows = set(log.read_text().split()) if log.exists() else set()
    log.unlink(missing_ok=True)
    return rows


def rounded(statistics: dict[str, Any]) -> Any:
    """Return statistics without the last digits, which depend on the order in which numbers are added."""
    return json.loads(json.dumps(statistics), parse_float=lambda text: round(float(text), 9))


def rows_of(receipt: dict[str, Any], sink: Path) -> list[dict[str, Any]]:
    return sorted(published(receipt, sink).to_pylist(), key=lambda row: row["row_id"])


@pytest.mark.slow
def test_late_files_cost_only_their_rows_and_give_what_a_run_of_all_rows_gives(run_job: RunJob, tmp_path: Path) -> None:
    write(tmp_path, [f"{number:03d}" for number in range(FILES)], "first")
    (tmp_path / "in/bad.txt").write_bytes(b"\xff\xfe\xfa")
    job = job_of(tmp_path)
    first = run_job(job)
    assert (first["rows_in"], first["rows_quarantined"]) == (FILES + 1, 1)
    seen(tmp_path)

    write(tmp_path, ["003", "217"], "a longer text")
    write(tmp_path, ["0030", "new"], "late")  # its name begins as that of another
    for name in ("bad", "004"):
        os.unlink(tmp_path / f"in/{name}.txt")
    second = run_job(job)
    assert seen(tmp_path) == {"003.txt", "217.txt", "0030.txt", "new.txt"}
    assert_settled(second)
    counts = ("rows_reused", "rows_added", "rows_changed", "rows_removed")
    assert [second["continued"][name] for name in counts] == [FILES - 3, 2, 2, 4]
    assert second["continued"]["why"][0].startswith("inputs changed: 2 new (")
    assert (second["rows_in"], second["rows_quarantined"], second["rows_resumed"]) == (FILES + 1, 0, FILES - 3)
    assert [part["rows_out"] for part in second["parts"]] == [FILES, 4]
    assert quarantine(tmp_path / "out", "all") == []
    assert run_job(job) == second

    other = run_job(job_of(tmp_path, "anew"))
    assert rows_of(second, tmp_path / "out") == rows_of(other, tmp_path / "anew")
    assert {name: second[name] for name in ("inputs", "rows_in", "rows_out", "rows_written")} == {
        name: other[name] for name in ("inputs", "rows_in", "rows_out", "rows_written")
    }
    assert rounded(second["columns"]) == rounded(other["columns"])

    seen(tmp_path)
    write(tmp_path, ["005"], "again")
    again = run_job(job_of(tmp_path, late="again"))
    assert (len(seen(tmp_path)), again["all_rows"]) == (FILES + 1, "source.late is again")


@pytest.mark.nightly
def test_ten_late_files_one_after_another_leave_few_files(run_job: RunJob, tmp_path: Path) -> None:
    write(tmp_path, [f"{number:03d}" for number in range(20)], "first")
    job = job_of(tmp_path)
    run_job(job)
    for number in range(12):
        seen(tmp_path)
        write(tmp_path, [f"late-{number}"], "late")
        receipt = run_job(job)
        assert seen(tmp_path) == {f"late-{number}.txt"}
        assert len(receipt["files"]) <= 10
        assert receipt["rows_out"] == 21 + number
    table: pa.Table = published(receipt, tmp_path / "out")
    assert len(set(table["row_id"].to_pylist())) == 32
