"""Promises of each command about the job file that it gets, in this process, without Ray."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from prefect.settings import PREFECT_API_URL, temporary_settings

from overnight.cli.main import main
from tests import jobs
from tests.contracts.orchestration.suite import COMMAND, DAY, Command

AWAY = "http://127.0.0.1:9/api"  # the port of `discard`, where no server listens
NO_JOB = "It takes no job file."
FINDINGS = "It prints each problem as a finding: tests/flows/doctor."
SCRAPES = "It serves until it is interrupted; a job file that is wrong is a metric of its own."
NO_SERVER = "It asks no Prefect server."
NO_CODE = "It neither imports nor reads code of the job."
WITHOUT_JOB = dict.fromkeys(("init", "site", "docs"), NO_JOB)
READERS = ("preview", "plan", "show", "diff", "compare", "verify", "undo", "history", "validate", "clean")
LEDGER_ALONE = (*WITHOUT_JOB, *READERS)


@pytest.fixture(autouse=True)
def _no_server_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("overnight.cli.doctor.os._exit", sys.exit)  # it would end the tests


def call(leaf: Command, *paths: Path, more: tuple[str, ...] = ()) -> Result:
    """Call the command with an address at which no Prefect server listens."""
    with temporary_settings({PREFECT_API_URL: AWAY}):
        return CliRunner().invoke(main, [*leaf.arguments(*paths), *more])


def test_every_command_is_in_the_suite() -> None:
    COMMAND.assert_complete()


@COMMAND.promise(
    "A job file that is wrong is refused with status 2 and the name of the key.", **WITHOUT_JOB, metrics=SCRAPES
)
@pytest.mark.parametrize("wrong", [{"sinc": {}}, {"name": "Not Valid"}, {"schedule": {"cron": "never"}}])
def test_a_wrong_job_file_is_refused(leaf: Command, wrong: dict[str, Any], tmp_path: Path) -> None:
    path = jobs.write_job(tmp_path / "job.yaml", **wrong)
    result = call(leaf, path)
    assert result.exit_code == 2, result.output
    [key] = wrong
    assert key in result.output
    assert isinstance(result.exception, SystemExit)


@COMMAND.promise("A job file that is not there is refused with status 2 and its path.", **WITHOUT_JOB, metrics=SCRAPES)
def test_a_missing_job_file_is_refused(leaf: Command, tmp_path: Path) -> None:
    result = call(leaf, tmp_path / "gone.yaml")
    assert result.exit_code == 2, result.output
    assert "gone.yaml" in result.output


@COMMAND.promise(
    "An address in PREFECT_API_URL without a server is named, by one sentence and no traceback.",
    **dict.fromkeys(LEDGER_ALONE, NO_SERVER),
    notify="A job without receivers is refused first: tests/flows/notices.",
    status="Its statuses come from the ledger; the server only adds late runs.",
    metrics=SCRAPES,
    doctor=FINDINGS,
    search="It first needs a model that embeds; it then asks for the server as run does.",
)
def test_an_address_without_a_server_is_named(leaf: Command, tmp_path: Path) -> None:
    jobs.write_days(tmp_path, [DAY])
    result = call(leaf, jobs.write_job(tmp_path / "job.yaml"))
    assert result.exit_code == 1, result.output
    assert "PREFECT_API_URL: expected a Prefect server at http://127.0.0.1:9/api, found none" in result.output
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit | None)


@COMMAND.promise(
    "Code beside the job file is found from every folder.",
    **WITHOUT_JOB,
    metrics=SCRAPES,
    clean=NO_CODE,
    doctor=FINDINGS,
    search="It embeds by a model of the job, and a Python model has no embeddings of texts.",
    **dict.fromkeys(("run", "backfill"), "Shown with whole runs in test_code_beside_the_job.py."),
    **dict.fromkeys(("deploy", "serve"), "It loads the job as validate does, and its runs are those of run."),
)
def test_code_beside_the_job_is_found(leaf: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    elsewhere.mkdir()
    jobs.write_days(folder, [DAY])
    path = jobs.write_job(folder / "job.yaml", preprocess=[{"kind": "python", "target": "beside_the_job:double"}])
    (folder / "beside_the_job.py").write_text("def double(batch):\n    return {'twice': batch['id'] * 2}\n")
    monkeypatch.chdir(elsewhere)
    assert "expected a module" not in call(leaf, path).output


def test_a_range_that_ends_before_it_starts_is_refused_before_anything_is_imported(tmp_path: Path) -> None:
    path = jobs.write_job(tmp_path / "job.yaml")
    before = set(sys.modules)
    for command in ("backfill", "status"):
        result = CliRunner().invoke(main, [command, str(path), "--start", "2026-01-03", "--end", "2026-01-02"])
        assert result.exit_code == 2
        assert "2026-01-03 to 2026-01-02" in result.output
    assert "overnight.flows.batch_inference" not in set(sys.modules) - before


def test_json_of_a_plan_that_has_no_step_is_an_empty_list(tmp_path: Path) -> None:
    path = jobs.write_job(tmp_path / "job.yaml")
    days = ["--start", "2999-01-01", "--end", "2999-12-31", "--dry-run"]
    result = CliRunner().invoke(main, ["backfill", str(path), *days, "--json"])
    assert (result.exit_code, json.loads(result.stdout)) == (0, [])
    assert "to come" in CliRunner().invoke(main, ["backfill", str(path), *days]).output
