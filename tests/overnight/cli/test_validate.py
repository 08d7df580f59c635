"""`overnight validate` refuses what a run would stumble over later, with one sentence, and writes nothing."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import jobs
from tests.overnight.cli.results_on_disk import typed

MODEL = "class Model:\n    def __init__(self, depth): ...\n    def __call__(self, batch): return {}\n"
PYTHON = {"kind": "python", "target": "validated_model:Model"}
TWICE = {"preprocess": [{"kind": "derive_columns", "columns": {"twice": "xx * 2"}}]}
Validate = Callable[..., tuple[int, str]]


@pytest.fixture
def validate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Validate:
    """Validates a job whose inputs and code are there, with some other sections. The exit code, and what is printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OVERNIGHT_STORAGE_RETRY_SECONDS", "2")
    for folder in ("in", "empty", "taken/_overnight/all", "foreign", "json"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "in/a.csv").write_text("x\n1\n")
    (tmp_path / "json/a.jsonl").write_text('{"x": 1}\n')
    (tmp_path / "taken/_overnight/all/receipt.json").write_text('{"job": "theirs"}')
    (tmp_path / "foreign/theirs.parquet").write_bytes(b"x")
    (tmp_path / "validated_model.py").write_text(MODEL)
    (tmp_path / "model.onnx").write_bytes(b"weights")
    whole = {
        "source": {"kind": "csv", "path": "in"},
        "inference": [PYTHON | {"kwargs": {"depth": 3}}],
        "sink": {"kind": "parquet", "path": "out"},
    }

    def run(change: dict[str, Any], *options: str) -> tuple[int, str]:
        jobs.write_job(tmp_path / "job.yaml", **whole | change)
        code, out, err = typed("validate", tmp_path, *options)
        return code, out if "--json" in options else out + err

    return run


def test_a_job_that_can_run_is_valid_and_its_next_run_is_named(validate: Validate, tmp_path: Path) -> None:
    code, printed = validate({"schedule": {"cron": "0 2 29 2 *", "timezone": "Europe/Berlin"}})
    assert code == 0, printed
    assert "the next run starts 2028-02-29 02:00 CET, for the partition all" in printed
    assert "job 'small' is valid" in printed
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"inference": [PYTHON | {"target": "validated_model:Modell"}]}, "found Model. Correct the name"),
        ({"inference": [PYTHON]}, "missing a required argument: 'depth'"),
        ({"inference": [PYTHON | {"kwargs": {"dept": 3}}]}, "It takes (depth), and kwargs gives dept"),
        ({"inference": [{"kind": "python", "target": "absent:Model"}]}, "expected a module absent"),
        ({"inference": [{"kind": "text_embedding", "model": "./lost", "text_column": "x"}]}, "lost"),
        ({"inference": [{"kind": "torch", "program": "lost.pt2", "columns": ["x"]}]}, "lost.pt2"),
        (
            {"inference": [{"kind": "onnx", "file": "model.onnx", "columns": ["x"]}]},
            "pip install 'overnight[onnx]'",
        ),
        ({"preprocess": [{"kind": "python", "target": "validated_model:step"}]}, "expected step in validated_model"),
        ({"checks": {"python": "validated_model:check"}}, "expected check in validated_model"),
        ({"source": {"kind": "csv", "path": "absent"}}, "there is no directory"),
        ({"source": {"kind": "csv", "path": "${VALIDATED_NOWHERE}/in"}}, "needs VALIDATED_NOWHERE, not set here"),
        ({"source": {"kind": "csv", "path": "empty"}}, "Check source, or set source.allow_empty"),
        ({"sink": {"kind": "parquet", "path": "taken"}}, "found results published by the job 'theirs'"),
        ({"sink": {"kind": "parquet", "path": "foreign"}}, "theirs.parquet"),
        (TWICE, "expected a column 'xx', found row_id, uri, x (did you mean x?); these are the first inputs"),
    ],
)
def test_what_a_run_would_stumble_over_is_refused(
    validate: Validate, change: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, printed = validate(change)
    assert (code, printed.count(words)) == (2, 1), printed
    assert "is valid" not in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("source", "level", "words"),
    [
        ({"kind": "csv", "path": "in/{partition}"}, "ok", "not checked: source.path: expected"),  # not there yet
        ({"kind": "jsonl", "path": "json"}, "warning", "expected a column 'xx'"),  # a later row may have the key
    ],
)
def test_a_column_that_the_run_may_still_find_is_not_wrong(
    validate: Validate, source: dict[str, str], level: str, words: str
) -> None:
    code, printed = validate({"source": source, **TWICE}, "--json")
    assert code == 0, printed
    [columns] = [each for each in json.loads(printed) if each["what"] == "columns"]
    assert (columns["level"], words in columns["found"]) == (level, True)


def test_an_address_that_no_run_can_use_is_refused(validate: Validate, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"source": {"kind": "csv", "path": "absent"}}  # --fast does not look at places
    for address, code in (("ray://head:10001", 2), ("head:6379", 0)):
        monkeypatch.setenv("RAY_ADDRESS", address)
        found, printed = validate(absent, "--fast")
        assert (found, "RAY_ADDRESS: expected HOST:PORT" in printed) == (code, code == 2)


def test_a_problem_of_the_code_and_of_the_model_is_printed_once_at_its_first_place(validate: Validate) -> None:
    steps = [{"kind": "python", "target": f"{module}:step"} for module in ("absent_a", "absent_b")]
    code, printed = validate({"preprocess": steps})
    lines = [line.partition(": expected")[0] for line in printed.splitlines() if "absent_" in line]
    assert (code, lines) == (2, ["code: absent_a:step", "code: absent_b:step"])


def test_a_table_s_own_row_id_has_the_name_that_a_run_gives_it(validate: Validate, tmp_path: Path) -> None:
    (tmp_path / "in/a.csv").write_text("row_id,x\n7,1\n")
    assert validate({"preprocess": [{"kind": "drop_columns", "columns": ["source_row_id"]}]})[0] == 0
    _, printed = validate({"preprocess": [{"kind": "drop_columns", "columns": ["xx"]}]})
    assert "expected a column 'xx', found row_id, uri, source_row_id, x" in printed


def test_fixed_text_behind_a_column_is_a_warning(validate: Validate) -> None:
    asks = {"kind": "openai", "model": "small", "user": "{x} " + "rule " * 250}
    code, printed = validate({"inference": [asks]}, "--fast")
    assert (code, "openai: 1,251 characters of fixed text come behind the first column" in printed) == (0, True)
    code, printed = validate({"inference": [asks | {"system": "rule " * 250, "user": "{x}"}]}, "--fast")
    assert (code, "fixed text" in printed) == (0, False)


def test_an_estimate_needs_a_row_that_came_through(validate: Validate) -> None:
    code, printed = validate({"inference": []}, "--estimate")
    assert (code, "estimate for 1,000 rows, from 1 rows that ran\n  time: about" in printed) == (0, True)
    code, printed = validate({"inference": []}, "--estimate", "--json")
    assert (code, type(json.loads(printed))) == (0, list)
    none = {"inference": [], "preprocess": [{"kind": "filter_rows", "expression": "x > 1"}]}
    code, printed = validate(none, "--estimate")
    assert (code, "none of the first 8 rows came through" in printed, "estimate for" in printed) == (1, True, False)
