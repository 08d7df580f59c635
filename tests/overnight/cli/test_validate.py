"""`overnight validate` refuses what a run would stumble over later, with one sentence, and writes nothing."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from overnight.cli.main import main

Validate = Callable[..., Result]
MODEL = "class Model:\n    def __init__(self, depth): ...\n    def __call__(self, batch): return {}\n"


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    """A job whose inputs and code are there."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("x\n1\n")
    (tmp_path / "validated_model.py").write_text(MODEL)
    return {
        "name": "checked",
        "source": {"kind": "csv", "path": "in"},
        "inference": [{"kind": "python", "target": "validated_model:Model", "kwargs": {"depth": 3}}],
        "sink": {"kind": "parquet", "path": "out"},
    }


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Validate:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OVERNIGHT_STORAGE_RETRY_SECONDS", "2")

    def run(job: dict[str, Any], *options: str) -> Result:
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
        return CliRunner().invoke(main, ["validate", "job.yaml", *options])

    return run


def test_a_job_that_can_run_is_valid_and_its_next_run_is_named(
    validate: Validate, job: dict[str, Any], tmp_path: Path
) -> None:
    found = validate(job | {"schedule": {"cron": "0 2 29 2 *", "timezone": "Europe/Berlin"}})
    assert found.exit_code == 0, found.output
    assert "the next run starts 2028-02-29 02:00 CET, for the partition all" in found.output
    assert "job 'checked' is valid" in found.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inference": [{"kind": "python", "target": "validated_model:Modell"}]}, "found Model. Correct the name"),
        (
            {"inference": [{"kind": "python", "target": "validated_model:Model"}]},
            "missing a required argument: 'depth'",
        ),
        (
            {"inference": [{"kind": "python", "target": "validated_model:Model", "kwargs": {"dept": 3}}]},
            "missing a required argument: 'depth'. It takes (depth), and kwargs gives dept",
        ),
        ({"inference": [{"kind": "python", "target": "absent:Model"}]}, "expected a module absent"),
        ({"inference": [{"kind": "text_embedding", "model": "./lost", "text_column": "x"}]}, "lost"),
        ({"inference": [{"kind": "torch", "program": "lost.pt2", "columns": ["x"]}]}, "lost.pt2"),
        ({"preprocess": [{"kind": "python", "target": "validated_model:step"}]}, "expected step in validated_model"),
        ({"checks": {"python": "validated_model:check"}}, "expected check in validated_model"),
        ({"source": {"kind": "csv", "path": "absent"}}, "there is no directory"),
        ({"source": {"kind": "csv", "path": "${VALIDATED_NOWHERE}/in"}}, "needs VALIDATED_NOWHERE, not set here"),
        ({"source": {"kind": "csv", "path": "empty"}}, "empty, found none. Check source, or set source.allow_empty"),
        ({"source": {"kind": "csv", "path": "in", "delimeter": ";"}}, "unknown key (did you mean delimiter?)"),
        ({"schedule": {"cron": "61 2 * * *"}}, "expected five cron fields"),
        ({"sink": {"kind": "parquet", "path": "taken"}}, "found results published by the job 'theirs'"),
        (
            {"preprocess": [{"kind": "derive_columns", "columns": {"twice": "xx * 2"}}]},
            "expected a column 'xx', found row_id, uri, x (did you mean x?); these are the first inputs",
        ),
    ],
)
def test_what_a_run_would_stumble_over_is_refused(
    validate: Validate, job: dict[str, Any], change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "taken/_overnight/all").mkdir(parents=True)
    (tmp_path / "taken/_overnight/all/receipt.json").write_text('{"job": "theirs"}')
    found = validate(job | change)
    assert found.exit_code == 2
    assert found.output.count(words) == 1
    assert "is valid" not in found.output
    assert "Traceback" not in found.output


def test_an_address_that_no_run_can_use_is_refused(
    validate: Validate, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    found = validate(job, "--fast")
    assert found.exit_code == 2
    assert "Ray: RAY_ADDRESS: expected HOST:PORT of the cluster's GCS" in found.output
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert validate(job, "--fast").exit_code == 0


def test_a_table_s_own_row_id_has_the_name_that_a_run_gives_it(
    validate: Validate, job: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "in/a.csv").write_text("row_id,x\n7,1\n")
    assert validate(job | {"preprocess": [{"kind": "drop_columns", "columns": ["source_row_id"]}]}).exit_code == 0
    found = validate(job | {"preprocess": [{"kind": "drop_columns", "columns": ["xx"]}]})
    assert "expected a column 'xx', found row_id, uri, source_row_id, x" in found.output


def test_a_library_that_a_model_needs_is_missing_before_the_run(
    validate: Validate, job: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (tmp_path / "model.onnx").write_bytes(b"weights")
    found = validate(job | {"inference": [{"kind": "onnx", "file": "model.onnx", "columns": ["x"]}]})
    assert found.exit_code == 2
    assert "kind: onnx: expected the library onnxruntime where the job runs, found none." in found.output
    assert "pip install 'overnight[onnx]'" in found.output


def test_files_of_others_in_the_sink_are_refused(validate: Validate, job: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/theirs.parquet").write_bytes(b"x")
    found = validate(job, "--json")
    assert found.exit_code == 2
    [sink] = [each for each in json.loads(found.stdout) if each["what"] == "sink"]
    assert sink["level"] == "wrong"
    assert "theirs.parquet" in sink["found"]


def test_the_columns_of_inputs_that_are_not_there_yet_are_left_to_the_run(
    validate: Validate, job: dict[str, Any]
) -> None:
    steps = [{"kind": "derive_columns", "columns": {"twice": "xx * 2"}}]
    found = validate(job | {"source": {"kind": "csv", "path": "in/{partition}"}, "preprocess": steps}, "--json")
    assert found.exit_code == 0, found.output
    [columns] = [each for each in json.loads(found.stdout) if each["what"] == "columns"]
    assert columns["level"] == "ok"
    assert columns["found"].startswith("not checked: source.path: expected")


def test_a_key_that_the_first_json_lines_lack_is_a_warning_because_a_later_row_may_have_it(
    validate: Validate, job: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "in/a.jsonl").write_text('{"x": 1}\n')
    steps = [{"kind": "derive_columns", "columns": {"twice": "xx * 2"}}]
    found = validate(job | {"source": {"kind": "jsonl", "path": "in"}, "preprocess": steps}, "--json")
    assert found.exit_code == 0, found.output
    [columns] = [each for each in json.loads(found.stdout) if each["what"] == "columns"]
    assert columns["level"] == "warning"
    assert "expected a column 'xx'" in columns["found"]


def test_the_checks_of_a_job_file_import_neither_prefect_nor_ray_because_both_take_seconds() -> None:
    heavy = "{'prefect', 'ray', 'torch', 'transformers'} & set(sys.modules)"
    code = f"import sys; from overnight.flows.doctor import environment, job_file; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_fast_does_not_look_at_places(validate: Validate, job: dict[str, Any]) -> None:
    assert validate(job | {"source": {"kind": "csv", "path": "absent"}}, "--fast").exit_code == 0
