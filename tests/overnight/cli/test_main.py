"""The command line as a script meets it: exit codes, and one JSON document on stdout."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from overnight.cli.main import main
from tests.flows.conftest import Overnight
from tests.prefect_api import ask

JOB = {"name": "pictures", "checks": {"max_quarantined": 0.0}}


@pytest.fixture
def job_file(pictures: Path, tmp_path: Path) -> Path:
    job = {
        **JOB,
        "source": {"kind": "images", "path": "in/date={partition}"},
        "sink": {"kind": "parquet", "path": "out"},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


@pytest.mark.slow
def test_a_run_prints_its_receipt_and_nothing_else(
    overnight: Overnight, overnight_process: Overnight, job_file: Path, tmp_path: Path, prefect_api: str
) -> None:
    done = overnight_process("run", "job.yaml", "--partition", "2026-01-02", "--json", "--ray-dashboard")
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout)
    assert (receipt["status"], receipt["rows_out"]) == ("published", 12)
    assert "Prefect UI: " in done.stderr
    assert "Starting Ray, about 10 s\n" in done.stderr
    [dashboard] = re.findall(r"^Ray's dashboard: (http://127\.0\.0\.1:[0-9]+)$", done.stderr, re.MULTILINE)
    summaries = ask(prefect_api, "/artifacts/filter", {"artifacts": {"key": {"any_": ["pictures-summary"]}}})
    assert any(f"[Ray's dashboard]({dashboard})" in summary["data"] for summary in summaries)
    assert all((tmp_path / "out" / file).is_file() for file in receipt["files"])
    again = overnight("run", "job.yaml", "--partition", "2026-01-02", "--json")
    assert (again.returncode, json.loads(again.stdout)) == (0, receipt)


def test_a_failed_run_says_where_and_why_and_exits_with_1(overnight: Overnight, job_file: Path, tmp_path: Path) -> None:
    done = overnight("run", "job.yaml", "--partition", "2030-01-01", "--json")
    failure = json.loads(done.stdout)
    assert done.returncode == 1
    assert {name: failure[name] for name in ("job", "partition", "status", "stage", "error_type")} == {
        "job": "pictures",
        "partition": "2030-01-01",
        "status": "failed",
        "stage": "ingest",
        "error_type": "InputError",
    }
    assert "date=2030-01-01" in failure["error_message"]
    assert "Traceback" not in done.stderr


def test_status_tells_of_failures_and_exits_with_0(overnight: Overnight, job_file: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "out/_overnight/date=2026-01-02"
    ledger.mkdir(parents=True)
    failure = {"job": "pictures", "attempt": "a", "stage": "infer", "error_message": "no memory", "failed_at": "2026"}
    (ledger / "failure.json").write_text(json.dumps(failure))
    days = ("--start", "2026-01-01", "--end", "2026-01-02")
    done = overnight("status", "job.yaml", *days, "--json", "--inputs")
    assert done.returncode == 0, done.stderr
    found = [(entry["partition"], entry["status"], entry["why"]) for entry in json.loads(done.stdout)]
    assert found == [("2026-01-01", "missing", []), ("2026-01-02", "failed", ["infer: no memory"])]
    assert "inputs of 0 of 0 partitions" in done.stderr
    shown = overnight("status", "job.yaml", *days)
    assert shown.returncode == 0
    assert "infer: no memory" in shown.stdout
    (ledger / "failure.json").write_text("{")
    broken = overnight("status", "job.yaml")
    assert (broken.returncode, broken.stdout) == (1, "")
    assert "date=2026-01-02/failure.json: expected a JSON object" in broken.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "absent.yaml"], "absent.yaml"),
        (["run", "job.yaml", "--partition", "yesterday"], "YYYY-MM-DD"),
        (["run", "job.yaml", "--set", "sink.pth=x"], "sink.pth"),
        (["run", "job.yaml", "--limit-rows", "0"], "limit-rows"),
        (["run"], "JOB.yaml"),
        (["validate"], "expected JOB.yaml"),
        (["status", "absent.yaml"], "absent.yaml"),
        (["status", "job.yaml", "--start", "yesterday"], "yesterday"),
        (["status", "job.yaml", "--start", "2026-01-03", "--end", "2026-01-02"], "2026-01-02"),
    ],
)
def test_bad_usage_exits_with_2_and_names_the_mistake(
    overnight: Overnight, job_file: Path, arguments: list[str], words: str
) -> None:
    done = overnight(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


def test_the_process_exits_with_2_after_bad_usage(overnight_process: Overnight) -> None:
    done = overnight_process("run")
    assert (done.returncode, done.stdout) == (2, "")
    assert "JOB.yaml" in done.stderr


def test_validate_accepts_a_good_file_and_prints_the_schema(overnight: Overnight, job_file: Path) -> None:
    assert overnight("validate", "job.yaml").returncode == 0
    schema = json.loads(overnight("validate", "--schema").stdout)
    assert schema["required"] == ["name", "source", "sink"]


def test_the_shipped_schema_is_the_current_one(overnight: Overnight) -> None:
    shipped = Path(__file__).parents[3] / "deployments/jobs/job.schema.json"
    assert json.loads(shipped.read_text()) == json.loads(overnight("validate", "--schema").stdout)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["deploy"], "expected deployments/prefect.yaml, found no file. Call this in the project"),
        (["deploy", "job.yaml"], "expected full paths or URIs in a deployment, found sink.path: out"),
        (["serve", "job.yaml"], "expected full paths or URIs in a deployment, found sink.path: out"),
    ],
)
def test_what_cannot_be_deployed_is_refused_before_a_server_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("overnight.flows.runs.local_server.prefect_server", lambda: pytest.fail("a server was started"))
    job = {"name": "it", "source": {"kind": "csv", "path": "/in"}, "sink": {"kind": "csv", "path": "out"}}
    Path("job.yaml").write_text(yaml.safe_dump(job))
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr


def test_the_command_line_itself_imports_neither_flows_nor_prefect() -> None:
    code = "import sys; import overnight.cli.main; print({'prefect', 'ray', 'overnight.flows'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
