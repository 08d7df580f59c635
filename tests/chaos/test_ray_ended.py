"""A local Ray that dies ends its run within seconds: the terminal and the record name it, and the next run goes on."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest

from tests import jobs
from tests.chaos.conftest import receipt_of, wait_for_parts
from tests.chaos.runs import MARK, Start, kill, processes_with, set_pace, slow_model
from tests.flows.conftest import published

pytestmark = pytest.mark.chaos

ROWS = 300
COUNTS = re.compile(r"^ +\d+ s  ingest: (\d+) rows.*· infer: (\d+) rows.*· write: (\d+) rows", re.MULTILINE)


def test_a_run_whose_ray_died_says_so_with_its_stage_and_its_rows_are_not_inferred_again(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    pyarrow.csv.write_csv(pa.table({"x": range(ROWS)}), tmp_path / "data/a.csv")
    job = jobs.write_job(
        tmp_path / "job.yaml",
        source={"kind": "csv", "path": str(tmp_path / "data")},
        inference=[slow_model(tmp_path, 0.1) | {"batch_size": 5}],
        sink={"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": 20},
    )
    run = start("run", job.name)
    wait_for_parts(run, tmp_path, 4)
    [gcs] = [pid for pid, command in processes_with(MARK, run.mark).items() if "/gcs_server " in command]
    assert kill(gcs)
    _, words = run.communicate(timeout=60)  # Ray itself waits a minute, and then ends the process without a word
    assert run.returncode == 1
    failure = json.loads((tmp_path / "out/_overnight/all/failure.json").read_text())
    assert (failure["stage"], failure["error_type"]) == ("infer", "RayEnded")
    assert f"in infer: {failure['error_message']}" in words

    # The lines without a terminal: the phases by their names, and the rows of each stage while their total is unknown.
    phases = ["Starting Ray", "infer: loading the models and running them", "failed: "]
    places = [words.index(phase) for phase in phases]
    assert places == sorted(places)
    assert not re.search(r"\d+ of [\d,]+ rows", words)
    rows = [tuple(map(int, line.groups())) for line in COUNTS.finditer(words)]
    assert rows
    assert rows == sorted(rows)
    assert all(ROWS >= ingest >= infer >= write for ingest, infer, write in rows)

    set_pace(tmp_path, 0)
    again = start("run", job.name)
    _, words = again.communicate(timeout=120)
    assert again.returncode == 0, words
    receipt = receipt_of(tmp_path)
    assert receipt["rows_resumed"] >= 60
    assert sorted(published(receipt, tmp_path / "out")["twice"].to_pylist()) == [2 * x for x in range(ROWS)]
