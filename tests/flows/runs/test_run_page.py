"""The artifacts of a run, and the state with which it ends, on a real server and without Ray."""

import json
from pathlib import Path
from string import ascii_lowercase
from typing import Any
from uuid import UUID

import prefect.runtime
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.objects import State

from overnight.flows.report.past import group_reasons
from overnight.flows.report.verdict import Verdict
from overnight.flows.runs.cancellation import completed
from overnight.flows.runs.flow_run import in_one_sentence
from overnight.flows.runs.run_page import failure_shown, of_published, progress_shown, quarantine_table, show_published
from overnight.tasks.artifacts import create_listed
from overnight.tasks.engine.progress import Progress, StageProgress, parsed
from overnight.tasks.errors import CheckFailed
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import QUARANTINE
from overnight.tasks.storage.location import Location
from tests.prefect_api import ask
from tests.tasks.runs import make_run

REASON = "expected an image (JPEG, PNG), found 16 bytes"
QUARANTINED = {"row_id": "7/a.png", "uri": "/data/7/a.png", "stage": "preprocess", "error_type": "RowError"}
RECEIPT: dict[str, Any] = {
    **{"generation": "g1", "limit_rows": None, "rows_in": 3, "rows_out": 2, "rows_filtered": 0, "rows_resumed": 0},
    **{"rows_quarantined": 1, "rows_duplicate": 0, "seconds": 1.0, "rows_per_second": 3.0, "warnings": [], "logs": ""},
    "stages": {"ingest": {"rows": 3, "seconds": 0.5, "bytes": 9}},
    "performance": {"advice": "bound by start-up"},
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("OUT_ROOT", str(tmp_path))
    rows = pa.Table.from_pylist([QUARANTINED | {"error_message": REASON}], schema=QUARANTINE)
    folder = tmp_path / "state/date=2026-11-25/quarantine"
    folder.mkdir(parents=True)
    pq.write_table(rows, folder / "quarantine-g1.parquet")
    pq.write_table(rows, folder.parent / "failure-quarantine.parquet")
    job = f"page-{tmp_path.name.replace('_', '-')}"
    places = {"state": Location("${OUT_ROOT}/state"), "sink": Location("${OUT_ROOT}/out")}
    return make_run(tmp_path, "2026-11-25", job=job, generation="g1", **places)


def artifacts(api: str, state: State[Any]) -> dict[str, Any]:
    """Return the artifacts of the state's flow run by the end of their key, if no key is there twice."""
    assert state.state_details.flow_run_id
    mine = {"artifacts": {"flow_run_id": {"any_": [str(state.state_details.flow_run_id)]}}}
    found = ask(api, "/artifacts/filter", mine)
    assert len({one["key"] for one in found}) == len(found)
    return {one["key"].rpartition("-")[2]: one for one in found}


def test_a_run_that_published_has_a_summary_with_links_and_its_quarantine_with_the_reason_first(
    prefect_api: str, run: Run, tmp_path: Path
) -> None:
    verdict = Verdict("look", "Look before you use it: drift in label. 2 rows published of 3 read, 1 quarantined.")

    @flow(persist_result=False)
    def publishes() -> Any:
        return completed(show_published(run, RECEIPT, verdict, "${OUT_ROOT}/out"), None)

    state = publishes(return_state=True)
    found = artifacts(prefect_api, state)
    assert found.keys() == {"summary", "quarantine"}
    message = f"{verdict.sentence} Quarantined: 1 not an image. 1.0 s"
    assert state.message == message
    assert found["summary"]["description"] == verdict.sentence
    summary = found["summary"]["data"]
    assert summary.startswith(f"# ⚠️ Look first: {run.job}/{run.partition}\n\n**{verdict.sentence}**\n")
    assert f"[quarantined rows](/artifacts/artifact/{found['quarantine']['id']})" in summary
    assert f"- rows: `{tmp_path}/out`" in summary
    [row] = json.loads(found["quarantine"]["data"])
    assert row == {
        "rows": 1,
        "reason": "not an image",
        "for example": "7/a.png",
        "stage": "preprocess",
        "error_type": "RowError",
        "error_message": REASON,
    }


def test_the_quarantine_has_each_reason_once_with_its_rows_although_their_numbers_differ() -> None:
    rows = [QUARANTINED | {"row_id": f"{n}.png", "error_message": f"the row {n} is too dark"} for n in range(9)]
    rows.append(QUARANTINED | {"error_message": REASON})
    dark, other = quarantine_table(group_reasons(rows))
    assert (dark["rows"], dark["for example"]) == (9, "0.png, 1.png, 2.png, 3.png")
    assert (other["rows"], other["reason"]) == (1, "not an image")


def test_the_table_of_reasons_has_a_bound() -> None:
    words = [f"{first}{second}" for first in ascii_lowercase for second in ascii_lowercase]
    rows = [QUARANTINED | {"error_message": word} for word in words]
    assert len(quarantine_table(group_reasons(rows))) == 100


def test_the_new_ui_lists_the_summary_first_among_the_artifacts_of_overnight(prefect_api: str, run: Run) -> None:
    @flow(persist_result=False)
    def publishes() -> None:
        for number in range(4):
            key = f"{run.job}-other{number}"
            with get_client(sync_client=True) as client:
                create_listed(client, ArtifactCreate(key=key, flow_run_id=UUID(prefect.runtime.flow_run.id)))
        show_published(run, RECEIPT, None, "out")

    state = publishes(return_state=True)
    mine = {"artifacts": {"flow_run_id": {"any_": [str(state.state_details.flow_run_id)]}}, "sort": "ID_DESC"}
    keys = [artifact["key"] for artifact in ask(prefect_api, "/artifacts/filter", mine)]
    assert keys[0] == f"{run.job}-summary"
    assert len(keys) == len(set(keys)) == 6


def test_the_summary_of_a_sample_counts_no_row_as_published(run: Run) -> None:
    summary = of_published(run, RECEIPT | {"limit_rows": 2}, None, [], {}, {})
    assert "| rows in the sample | 2 |" in summary
    assert "rows published" not in summary


def test_a_failed_run_shows_the_quarantine_that_it_kept_and_its_state_has_the_stage_and_one_sentence(
    prefect_api: str, run: Run
) -> None:
    @flow(persist_result=False)
    @in_one_sentence
    def fails() -> None:
        with failure_shown(run):
            raise CheckFailed("too many rows.\nThe rows are kept.")

    state = fails(return_state=True)
    assert state.is_failed()
    assert state.message == "failed in write: too many rows."
    with pytest.raises(CheckFailed, match="The rows are kept"):
        state.result()
    found = artifacts(prefect_api, state)
    assert found.keys() == {"summary", "quarantine"}
    sentence = "Nothing new to trust: the run failed in write, and no rows of this partition are published."
    assert found["summary"]["description"] == f"{sentence} Its error: too many rows."
    summary = found["summary"]["data"]
    assert summary.startswith(f"# ❌ Not published: {run.job}/{run.partition} failed in write\n\n**{sentence}")
    assert "> The rows are kept." in summary


def test_progress_is_one_artifact_with_all_facts_and_the_progress_itself(prefect_api: str, run: Run) -> None:
    stages = {"ingest": StageProgress(2), "write": StageProgress(1)}
    half = Progress(9.0, stages, 2, filtered=1)

    @task(persist_result=False)
    def streams() -> None:
        with progress_shown(run) as show:
            show(Progress(1.0, {stage: StageProgress() for stage in stages}, 2))
            show(half)

    @flow(persist_result=False)
    def runs() -> None:
        streams()

    found = artifacts(prefect_api, runs(return_state=True))
    assert found.keys() == {"progress"}
    assert float(found["progress"]["data"]) == 50
    assert found["progress"]["description"].startswith("ingest: 2 of 2 rows · write: 1 of 2 rows · ")
    assert "1 filtered" in found["progress"]["description"]
    assert found["progress"]["metadata_"]["partition"] == run.partition
    assert parsed(found["progress"]["metadata_"]).stages == stages
    assert found["progress"]["task_run_id"]
