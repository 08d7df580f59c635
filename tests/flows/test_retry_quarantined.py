"""`--retry-quarantined`: only the quarantined rows run again, and join the published partition in one publish."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.flows.job.loading import load_job
from overnight.flows.ledger.partition_status import read_ledger
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, published, quarantine

MODEL = """
import json
import os
import numpy as np

SETTINGS = {settings!r}  # read at each call: a worker may have imported the module before it changed


class Twice:
    def __call__(self, batch):
        settings = json.load(open(SETTINGS))
        with open(settings["log"], "a") as log:
            log.writelines(f"{{row}}\\n" for row in batch["row_id"].tolist())
        if settings["breaks"]:
            return {{"twice": np.zeros(len(batch["row_id"]) + 1)}}  # no result at all: the run fails
        if set(batch["parts"].tolist()) & set(settings["refused"]):
            raise ValueError("not this one")
        return {{"twice": batch["parts"] * 2}}
"""


class Place:
    """A job over two Parquet files and a broken one; its model refuses one of the two parts of row 11."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.module, self.sink = folder, f"retry_models_{name}", folder / "out"
        (folder / "in").mkdir()
        for number, first in enumerate((0, 10)):
            self.write(f"{number}.parquet", range(first, first + 10))
        (folder / "in" / "broken.parquet").write_bytes(b"PAR1 is cut off")
        self.code("# first", refused=[111])
        self.job: dict[str, Any] = {
            "name": "job",
            "source": {"kind": "parquet", "path": str(folder / "in")},
            "preprocess": [{"kind": "filter_rows", "expression": "x != 4"}, {"kind": "explode", "columns": ["parts"]}],
            "inference": [{"kind": "python", "target": f"{self.module}:Twice", "batch_size": 4}],
            "checks": {"max_quarantined": 0.5},
            "sink": {"kind": "parquet", "path": str(self.sink)},
        }

    def write(self, name: str, numbers: range) -> None:
        parts = [[x * 10, x * 10 + 1] for x in numbers]
        pq.write_table(pa.table({"x": list(numbers), "parts": parts}), self.folder / "in" / name)

    def code(self, comment: str, refused: list[int], breaks: bool = False) -> None:
        """Write the model's code with a comment, and what it refuses from now on; forget what it has seen."""
        settings = self.folder / "settings.json"
        (self.folder / "log").write_text("")
        settings.write_text(json.dumps({"log": str(self.folder / "log"), "refused": refused, "breaks": breaks}))
        (WORKER_PATH / f"{self.module}.py").write_text(comment + MODEL.format(settings=str(settings)))

    @property
    def seen(self) -> set[str]:
        """The source rows that the model was called with."""
        return {line.rpartition(".")[0] for line in (self.folder / "log").read_text().splitlines()}


def expected(*numbers: int) -> dict[str, int]:
    """The published rows of these numbers: `twice` by part."""
    return {part: part * 2 for number in numbers for part in (number * 10, number * 10 + 1)}


def twice(receipt: dict[str, Any], sink: Path) -> dict[int, int]:
    table = published(receipt, sink)
    found = dict(zip(table["parts"].to_pylist(), table["twice"].to_pylist(), strict=True))
    assert len(found) == len(table)
    return found


@pytest.mark.slow
def test_after_a_fix_only_the_quarantined_rows_run_and_join_the_published_ones(run_job: RunJob, tmp_path: Path) -> None:
    place = Place(tmp_path, "fix")
    good = [n for n in range(20) if n not in (4, 11)]
    first = run_job(place.job)
    assert (first["rows_in"], first["rows_filtered"], first["rows_quarantined"]) == (21, 1, 2)
    assert twice(first, place.sink) == expected(*good)
    files = {file: (place.sink / file).read_bytes() for file in first["files"]}

    place.write("broken.parquet", range(20, 25))
    place.code("# put right", refused=[221])
    second = run_job(place.job, retry_quarantined=True)
    assert place.seen == {"1.parquet#1", *(f"broken.parquet#{n}" for n in range(5))}
    assert twice(second, place.sink) == expected(*good, 11, 20, 21, 23, 24)
    assert {file: (place.sink / file).read_bytes() for file in second["files"] if file in files} == files
    assert_settled(second, second["rows_written"])
    counts = ("rows_in", "rows_written", "rows_filtered", "rows_quarantined", "rows_resumed", "rows_out")
    assert [second[name] for name in counts] == [25, 23, 1, 1, 19, 46]
    assert [second["retried"][name] for name in counts[:4]] == [6, 5, 0, 1]
    assert second["retried"]["generation"] == first["generation"]
    assert second["retried"]["rows_quarantined_before"] == 2
    assert second["retried"]["files_again"] == ["broken.parquet"]
    assert [part["rows_out"] for part in second["parts"]] == [36, 10]
    assert second["columns"]["twice"]["rows"] == 46
    assert [row["row_id"] for row in quarantine(place.sink, "all")] == ["broken.parquet#2"]
    (entry,) = read_ledger(load_job(tmp_path / "job.yaml"))
    assert (entry.status, len(entry.why)) == ("stale", 1)
    assert f"{place.module}.py" in entry.why[0]

    place.code("# put right", refused=[])
    third = run_job(place.job, retry_quarantined=True)
    assert place.seen == {"broken.parquet#2"}
    assert twice(third, place.sink) == expected(*good, 11, *range(20, 25))
    assert (third["rows_quarantined"], len(third["parts"])) == (0, 3)
    assert third["fingerprint"] == first["fingerprint"] != third["parts"][1]["fingerprint"]
    assert quarantine(place.sink, "all") == []
    assert run_job(place.job, retry_quarantined=True) == third
