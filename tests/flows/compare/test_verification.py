"""Published rows are computed again: what was tampered with is found, and why rows differ is told apart."""

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from overnight.cli.main import main
from overnight.flows.compare import verification
from overnight.flows.compare.verification import NotVerifiable, verify
from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.state.run import read_json, write_json
from overnight.tasks.write.in_process import describe, summary, versions
from tests.flows.ledger.published import publish

ROWS = 200
STEPS = [{"kind": "derive_columns", "columns": {"half": "n / 2", "word": "'w' || n"}}]
LINES = {"kind": "filter_rows", "expression": "n % 10 != 9"}


def job_in(folder: Path, *more: Any, **keys: Any) -> Job:
    (folder / "in").mkdir(exist_ok=True)
    for number in range(2):
        lines = [f"{row}\n" for row in range(number * ROWS // 2, (number + 1) * ROWS // 2)]
        file = folder / f"in/{number}.csv"
        if not file.exists():
            file.write_text("n\n" + "".join(lines))
    source = {"kind": "csv", "path": str(folder / "in")}
    sink = {"kind": "parquet", "path": str(folder / "out")}
    job = {"name": "j", "source": source, "preprocess": [*STEPS, *more], "sink": sink}
    (folder / "job.yaml").write_text(yaml.safe_dump(job | keys))
    return load_job(folder / "job.yaml")


def published_rows(tampered: int = 0, seed: int = 0) -> pa.Table:
    """The rows that the job publishes, without those that its filter drops; some words are others."""
    numbers = [number for number in range(ROWS) if number % 10 != 9]
    words = [f"w{number}" for number in numbers]
    for place in random.Random(seed).sample(range(len(numbers)), tampered):
        words[place] = "tampered"
    ids = [f"{number // (ROWS // 2)}.csv#{number % (ROWS // 2)}" for number in numbers]
    return pa.table({"row_id": ids, "n": numbers, "half": [number / 2 for number in numbers], "word": words})


def publish_rows(folder: Path, job: Job, rows: pa.Table, **changes: Any) -> dict[str, Any]:
    facts = {"settings": job.settings(), "versions": versions(), "columns": summary(describe(rows), ())}
    counts = {"rows_in": ROWS, "rows_out": len(rows), "rows_filtered": ROWS - len(rows), "status": "published"}
    receipt = publish(job, "all", **{**counts, **facts, "files": ["part-0.parquet"], "limit_rows": None, **changes})
    pq.write_table(rows, folder / "out/part-0.parquet")
    quarantine = job.published.ledger("all") / "quarantine" / f"quarantine-{receipt['generation']}.parquet"
    text = {name: pa.array([], pa.string()) for name in ("row_id", "uri", "stage", "error_type", "error_message")}
    content = pa.BufferOutputStream()
    pq.write_table(pa.table(text), content)
    quarantine.write_bytes(content.getvalue().to_pybytes())
    return receipt


def test_rows_that_are_as_published_are_verified_with_an_exact_bound(tmp_path: Path) -> None:
    job = job_in(tmp_path, LINES)
    publish_rows(tmp_path, job, published_rows())
    found = verify(job, rows=60)
    assert (found.drawn, found.checked, found.total, found.differences, found.reasons) == (60, 60, ROWS, [], [])
    assert found.most == 8, "of 200 rows, 9 that differ would all be missed by 60 draws in less than 5 of 100 trials"
    assert verify(job, rows=1000).most == 0, "all rows are checked"
    document = json.loads(CliRunner().invoke(main, ["verify", str(tmp_path / "job.yaml"), "--json"]).stdout)
    assert (document["status"], document["share_at_most"], document["rows_checked"]) == ("verified", 0.0, ROWS)


def test_tampered_rows_are_found_as_often_as_the_law_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 180 published rows of 200 source rows, 6 are tampered with; 40 are drawn, 200 times."""
    job, tampered, drawn, trials = job_in(tmp_path, LINES), 6, 40, 200
    publish_rows(tmp_path, job, published_rows())
    real = verification.compute_again
    computed = real(job, "all", _manifest(job), verification.Drawing(ROWS))
    ids = computed.source_rows["row_id"].to_pylist()

    def drawn_of_computed(job: Job, partition: str, manifest: Any, drawing: Any) -> Any:
        """As `compute_again` draws, of rows that were computed once."""
        places = np.random.default_rng(drawing.seed).choice(ROWS, drawing.rows, replace=False)
        rows = computed.source_rows.take(pa.array(places))
        return verification.ComputedAgain(computed.side, rows, drawing.rows, ROWS)

    monkeypatch.setattr(verification, "compute_again", drawn_of_computed)
    assert len(ids) == ROWS
    hits, over = 0, 0
    for trial in range(trials):
        pq.write_table(published_rows(tampered, seed=trial), tmp_path / "out/part-0.parquet")
        found = verify(job, rows=drawn, seed=trial)
        assert {difference.what for difference in found.differences} <= {"differs in word"}
        hits += len(found.differences)
        over += found.most < tampered
    expected, share = trials * tampered * drawn / ROWS, drawn / ROWS
    deviation = math.sqrt(trials * tampered * share * (1 - share))
    assert abs(hits - expected) < 4 * deviation
    assert over <= trials * 0.05 + 4 * math.sqrt(trials * 0.05 * 0.95), "the bound holds in 95 of 100 trials"


def _manifest(job: Job) -> Any:
    ledger = job.published.ledger("all")
    return ledger / "generations" / (read_json(ledger / "receipt.json") or {})["generation"] / "manifest"


def test_missing_and_additional_rows_differ_too(tmp_path: Path) -> None:
    job = job_in(tmp_path, LINES)
    rows = published_rows()
    more = rows.slice(0, 1).set_column(0, "row_id", pa.array(["0.csv#9"]))
    publish_rows(tmp_path, job, pa.concat_tables([rows.slice(1), more]))
    found = {difference.row_id: difference.what for difference in verify(job, rows=ROWS).differences}
    assert found == {"0.csv#0": "is not published", "0.csv#9": "is published, and filtered now"}


def test_changed_files_are_told_from_other_libraries_code_and_inputs(tmp_path: Path) -> None:
    job = job_in(tmp_path, LINES)
    receipt = publish_rows(tmp_path, job, published_rows())
    numbers = published_rows()["half"].to_pylist()
    changed = published_rows().set_column(2, "half", pa.array([number + 1 for number in numbers]))
    pq.write_table(changed, tmp_path / "out/part-0.parquet")
    found = verify(job, rows=20)
    assert 10 < len(found.differences) <= 20, "all drawn rows that the filter did not drop"
    assert found.reasons == ["the bytes of published files changed: the receipt has other statistics of half"]
    ledger = job.published.ledger("all")
    record = {**receipt, "columns": summary(describe(changed), ()), "versions": {**versions(), "numpy": "0.9"}}
    write_json(ledger / "receipt.json", record)
    [reason] = verify(job, rows=20).reasons
    assert reason.startswith("another numpy: 0.9 then, ")
    (tmp_path / "in/1.csv").write_text("n\n5\n")
    reason = verify(job, rows=60).reasons[0]
    assert reason.startswith("inputs changed: 1 changed (1.csv); ")
    assert reason.endswith("not verified, and not in the bound")
    (tmp_path / "in/0.csv").unlink()
    with pytest.raises(NotVerifiable, match="every drawn input changed or is gone"):
        verify(job, rows=60)


def test_the_settings_of_the_receipt_compute_the_rows(tmp_path: Path) -> None:
    publish_rows(tmp_path, job_in(tmp_path, LINES), published_rows())
    other = job_in(tmp_path, LINES, {"kind": "derive_columns", "columns": {"word": "'x' || n"}})
    assert verify(other, rows=50, file=str(tmp_path / "job.yaml")).differences == []


def test_the_manifest_of_a_publish_must_be_there(tmp_path: Path) -> None:
    job = job_in(tmp_path, LINES)
    publish_rows(tmp_path, job, published_rows())
    _manifest(job).remove()
    with pytest.raises(NotVerifiable, match="expected the list of its inputs"):
        verify(job)
    take_manifest(_manifest(job), job.source, "all")
    assert verify(job, rows=10).checked == 10
