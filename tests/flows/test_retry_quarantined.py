"""`--retry-quarantined`: only the quarantined rows run again, and join the published partition in one publish."""

import json
from pathlib import Path
from typing import Any

import pytest

from overnight.flows.job.loading import load_job
from overnight.flows.ledger.partition_status import read_ledger
from tests import jobs
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, parquet, published, quarantine, write_parquet

MODEL = """
import json

SETTINGS = {settings!r}  # read at each call: a worker may have imported the module before it changed


class Twice:
    def __call__(self, batch):
        settings = json.load(open(SETTINGS))
        with open(settings["log"], "a") as log:
            log.writelines(f"{{row}}\\n" for row in batch["row_id"].tolist())
        if set(batch["parts"].tolist()) & set(settings["refused"]):
            raise ValueError("not this one")
        return {{"twice": batch["parts"] * 2}}
"""


def write_code(folder: Path, comment: str, refused: list[int]) -> None:
    """Write the model's code with a comment, and what it refuses from now on; forget what it has seen."""
    settings = folder / "settings.json"
    (folder / "log").write_text("")
    settings.write_text(json.dumps({"log": str(folder / "log"), "refused": refused}))
    (WORKER_PATH / "retry_models.py").write_text(comment + MODEL.format(settings=str(settings)))


def write_parts(path: Path, numbers: range) -> None:
    write_parquet(path, x=numbers, parts=[[x * 10, x * 10 + 1] for x in numbers])


def seen(folder: Path) -> set[str]:
    """The source rows that the model was called with."""
    return {line.rpartition(".")[0] for line in (folder / "log").read_text().splitlines()}


def expected(*numbers: int) -> list[tuple[int, int]]:
    """The published rows of these numbers: each part with its `twice`."""
    return [(part, part * 2) for number in numbers for part in (number * 10, number * 10 + 1)]


def twice(receipt: dict[str, Any], sink: Path) -> list[tuple[int, int]]:
    return sorted((row["parts"], row["twice"]) for row in published(receipt, sink).to_pylist())


@pytest.mark.slow
def test_after_a_fix_only_the_quarantined_rows_run_and_join_the_published_ones(run_job: RunJob, tmp_path: Path) -> None:
    sink = tmp_path / "out"
    for number, first in enumerate((0, 10)):
        write_parts(tmp_path / f"in/{number}.parquet", range(first, first + 10))
    (tmp_path / "in/broken.parquet").write_bytes(b"PAR1 is cut off")
    write_code(tmp_path, "# first", refused=[111])  # one of the two parts of row 11
    job = jobs.job(
        tmp_path,
        source=parquet(tmp_path),
        preprocess=[{"kind": "filter_rows", "expression": "x != 4"}, {"kind": "explode", "columns": ["parts"]}],
        inference=[{"kind": "python", "target": "retry_models:Twice", "batch_size": 4}],
        checks={"max_quarantined": 0.5},
    )
    good = [n for n in range(20) if n not in (4, 11)]
    first = run_job(job)
    assert (first["rows_in"], first["rows_filtered"], first["rows_quarantined"]) == (21, 1, 2)
    assert twice(first, sink) == expected(*good)
    files = {file: (sink / file).read_bytes() for file in first["files"]}

    write_parts(tmp_path / "in/broken.parquet", range(20, 25))
    write_code(tmp_path, "# put right", refused=[221])
    second = run_job(job, retry_quarantined=True)
    assert seen(tmp_path) == {"1.parquet#1", *(f"broken.parquet#{n}" for n in range(5))}
    assert twice(second, sink) == sorted(expected(*good, 11, 20, 21, 23, 24))
    assert {file: (sink / file).read_bytes() for file in second["files"] if file in files} == files
    assert_settled(second, second["rows_written"])
    counts = ("rows_in", "rows_written", "rows_filtered", "rows_quarantined", "rows_resumed", "rows_out")
    assert [second[name] for name in counts] == [25, 23, 1, 1, 19, 46]
    assert [second["retried"][name] for name in counts[:4]] == [6, 5, 0, 1]
    assert second["retried"]["generation"] == first["generation"]
    assert second["retried"]["rows_quarantined_before"] == 2
    assert second["retried"]["files_again"] == ["broken.parquet"]
    assert [part["rows_out"] for part in second["parts"]] == [36, 10]
    assert second["columns"]["twice"]["rows"] == 46
    assert [row["row_id"] for row in quarantine(sink, "all")] == ["broken.parquet#2"]
    (entry,) = read_ledger(load_job(tmp_path / "small.yaml"))
    assert (entry.status, len(entry.why)) == ("stale", 1)
    assert "retry_models.py" in entry.why[0]

    write_code(tmp_path, "# put right", refused=[])
    third = run_job(job, retry_quarantined=True)
    assert seen(tmp_path) == {"broken.parquet#2"}
    assert twice(third, sink) == sorted(expected(*good, 11, *range(20, 25)))
    assert (third["rows_quarantined"], len(third["parts"])) == (0, 3)
    assert third["fingerprint"] == first["fingerprint"] != third["parts"][1]["fingerprint"]
    assert quarantine(sink, "all") == []
    assert run_job(job, retry_quarantined=True) == third
