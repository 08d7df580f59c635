"""A canary in every place where a user may write a secret, and a search of all that runs write."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests import jobs
from tests.conftest import CANARY, WORKER_PATH
from tests.flows.conftest import Overnight
from tests.prefect_api import ask
from tests.secret_forms import FORMS, WALNUT
from tests.tasks.infer.chat_server import chat_server
from tests.warm_commands import Done

REASON = f"see https://me:{CANARY}@host/ticket?token={CANARY}"


def told_by_prefect(api: str, job: str) -> str:
    """Parameters, logs and artifacts of the job's runs, as the server has them."""
    runs = ask(api, "/flow_runs/filter", {"flow_runs": {"name": {"like_": job}}})
    ids = [run["id"] for run in runs]
    assert ids
    logs = ask(api, "/logs/filter", {"logs": {"flow_run_id": {"any_": ids}}, "limit": 200})
    artifacts = ask(api, "/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": ids}}})
    return json.dumps([runs, logs, artifacts])


def assert_silent(folder: Path, *told: str) -> None:
    """No file below the folder, of the Prefect server or of Ray's logs, and nothing that was told holds a canary."""
    server, workers = Path(os.environ["PREFECT_HOME"]), Path(os.environ["TESTS_RAY_FOLDER"]) / "session_latest/logs"
    assert list(server.glob("*.db")), "the server's database"
    assert list(workers.glob("worker-*")), "the logs of Ray's workers"
    for place in (folder, server, workers):
        for file in sorted(place.rglob("*")):
            if file.is_file():
                assert CANARY.encode() not in file.read_bytes(), file
    for text in told:
        assert not (at := text.find(CANARY) + 1), text[max(at - 200, 0) : at + 50]


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    jobs.write_days(tmp_path, ["all"])
    model = {"kind": "openai", "model": f"https://me:{CANARY}@hub/m?v={CANARY}", "user": "{id}"}
    model |= {"api_key_env": "CANARY_KEY", "retry_timeout_seconds": 0.5, "max_tries": 1}
    source = {"kind": "jsonl", "path": f"{tmp_path}/in"}
    return jobs.job(tmp_path, source=source, inference=[model], retries={"attempts": 1})


def run(overnight: Overnight, folder: Path, job: dict[str, Any], **changes: Any) -> Done:
    place = folder.parent / f"{folder.name}-job"  # the job file itself holds what its user wrote
    path = jobs.write_job(place / "job.yaml", job | changes)
    return overnight("run", str(path), "--json", "--reason", REASON)


def test_neither_a_run_that_publishes_nor_one_that_fails_tells_a_secret(
    overnight: Overnight, prefect_api: str, job: dict[str, Any], tmp_path: Path
) -> None:
    [model] = job["inference"]
    with chat_server() as server:
        model["base_url"] = f"{server.url}?key={CANARY}"
        published = run(overnight, tmp_path, job, name="canary-published")
    assert published.returncode == 0, published.stderr
    receipt = json.loads(published.stdout)
    assert receipt["settings"]["inference"][0]["base_url"] == f"{server.url}?key=***"
    assert receipt["reason"] == "see https://***:***@host/ticket?token=***"

    model["base_url"] = f"http://127.0.0.1:9/v1?key={CANARY}"
    asked = run(overnight, tmp_path, job, name="canary-asked", sink={**job["sink"], "path": f"{tmp_path}/asked"})
    assert (asked.returncode, json.loads(asked.stdout)["stage"]) == (1, "infer")
    assert "http://127.0.0.1:9/v1?key=***" in asked.stdout
    url = f"postgresql+psycopg://{CANARY}:${{CANARY_KEY}}@127.0.0.1:9/x?application_name={CANARY}"
    database = {"sink": {"kind": "sql", "table": "t", "url": url}, "state": f"{tmp_path}/state"}
    written = run(overnight, tmp_path, job, name="canary-database", inference=[], **database)
    assert written.returncode == 1
    assert "postgresql+psycopg://***:${CANARY_KEY}@127.0.0.1:9/x?application_name=***" in written.stdout

    printed = [text for done in (published, asked, written) for text in (done.stdout, done.stderr)]
    shown = [told_by_prefect(prefect_api, f"canary-{name}") for name in ("published", "asked", "database")]
    assert_silent(tmp_path, *printed, *shown)


TALKATIVE = f"""
import logging
import sys
import warnings

FORMS = {FORMS!r}
for form in FORMS:
    logging.getLogger("talkative").warning("loading with %s", form)


def model(batch):
    for row in batch["id"].tolist():
        if row % 2:
            form = FORMS[row // 2]
            print("printed:", form, flush=True)
            print("printed as an error:", form, file=sys.stderr, flush=True)
            warnings.warn("warned of " + form, stacklevel=1)
            logging.getLogger("talkative").error("logged: %s", form)
            raise ValueError("the row has no " + form)
    return {{"y": batch["id"]}}
"""


@pytest.mark.slow
def test_no_form_of_a_secret_that_a_model_prints_logs_or_raises_leaves_the_run(
    overnight: Overnight, prefect_api: str, tmp_path: Path
) -> None:
    (WORKER_PATH / "talkative.py").write_text(TALKATIVE)
    jobs.write_days(tmp_path, ["all"], rows=2 * len(FORMS))
    path = jobs.write_job(
        tmp_path / "job.yaml",
        name="talkative",
        source={"kind": "jsonl", "path": f"{tmp_path}/in"},
        inference=[{"kind": "python", "target": "talkative:model", "batch_size": 1}],
        checks={"max_quarantined": 1.0},
        retries={"attempts": 1},
    )
    run = overnight("run", str(path), "--json", "-v")
    assert run.returncode == 0, run.stderr
    receipt = json.loads(run.stdout)
    assert (receipt["rows_out"], receipt["rows_quarantined"]) == (len(FORMS), len(FORMS))
    shown = overnight("show", str(path), "--quarantine", "-n", "99")
    status = overnight("status", str(path), "--json")
    again = overnight("run", str(path), "--set", "inference.0.kwargs={}", "--json")  # another failure of its model

    [quarantine] = (tmp_path / "out/_overnight/all/quarantine").glob("*.parquet")
    reasons = str(pq.read_table(quarantine).to_pylist())
    logs = [file.read_text() for file in (tmp_path / "out/_overnight").rglob("*.log")]
    assert "the row has no" in reasons
    assert any("printed:" in log and "logged:" in log for log in logs)
    since = {"filter": {"resource": {"id_prefix": ["prefect.flow-run", "prefect.task-run"]}}, "limit": 50}
    places = {
        "terminal": run.stderr,
        "receipt on stdout": run.stdout,
        "show": shown.stdout + shown.stderr,
        "status": status.stdout + status.stderr,
        "the next run": again.stdout + again.stderr,
        "quarantine": reasons,
        "logs of the run": "".join(logs),
        "runs, logs and artifacts of Prefect": told_by_prefect(prefect_api, "talkative"),
        "events": json.dumps(ask(prefect_api, "/events/filter", since)),
    }
    for place, text in places.items():
        assert text, place
        assert not re.search(WALNUT, text), place
    for folder in (tmp_path / "out", Path(os.environ["PREFECT_HOME"])):
        for file in folder.rglob("*"):
            assert not file.is_file() or not re.search(WALNUT.encode(), file.read_bytes()), file
