"""A job file as it is read: YAML, overrides and relative paths."""

from pathlib import Path

import pytest

from overnight.flows.job.loading import JobFile, load_job, read_job, relative_paths, write_absolute_paths
from overnight.flows.job.yaml_loader import parse_yaml
from overnight.tasks.errors import JobError
from tests.flows.job.jobs import SMALL, WHOLE, complaint


def test_a_missing_file_says_so(tmp_path):
    assert "expected a job file, found no file" in complaint(tmp_path / "none.yaml")
    assert "cannot read" in complaint(tmp_path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(text, text) for text in ("NO", "on", "16:30", "2026-11-19", "007", "1_000", "1.2.3")],
        *[("true", True), ("12", 12), ("-3", -3), ("1e-3", 0.001), (".5", 0.5), ("1.", 1.0), (".inf", float("inf"))],
        *[("~", None), ("", None), ("'12'", "12")],
        ("{a: &x {b: 1}, c: {<<: *x, d: 2}}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
    ],
)
def test_yaml_values_are_what_they_look_like(text, value):
    found = parse_yaml(text, "text")
    assert (type(found), found) == (type(value), value)


def test_settings_are_overridden_by_dotted_keys(write):
    overrides = ["inference.1.batch_size=8", "checks.min_rows=5", "source.path=s3://other/", "schedule="]
    more = ["inference.0.workers=[2, 3]", "inference.1.kwargs.width=0.5", "inference.1.kwargs.api_key=${API_KEY}"]
    job = load_job(write(WHOLE), [*overrides, *more])
    assert (job.inference[1].batch_size, job.checks.min_rows, job.source.path) == (8, 5, "s3://other/")
    assert (job.inference[0].workers, job.schedule) == ((2, 3), None)
    assert job.inference[1].kwargs == {"depth": 20, "width": 0.5, "api_key": "${API_KEY}"}
    assert load_job(write(SMALL), ["checks.min_rows=7"]).checks.min_rows == 7


def test_relative_paths_are_taken_from_the_working_directory(write, tmp_path):
    sink = "sink: {kind: parquet, path: ./out}"
    text = f'name: a\nsource: {{kind: csv, path: "raw/{{partition}}/"}}\n{sink}\nstate: ../${{WHERE}}'
    job = load_job(write(text))
    assert job.source.path == f"{tmp_path}/raw/{{partition}}/"
    assert job.sink.path == f"{tmp_path}/out"
    assert job.state == f"{tmp_path.parent}/${{WHERE}}"
    paths = ["source.path: raw/{partition}/", "sink.path: ./out", "state: ../${WHERE}"]
    assert relative_paths(read_job(write(text))) == paths


@pytest.mark.parametrize("path", ["s3://b/x", "gs://b", "file:///x", "/x/y", "${ROOT}/x", "abfs://c@a/x", "~/x"])
def test_other_paths_stay_as_they_are_written(write, path):
    found = write(f'name: a\nsource: {{kind: csv, path: "{path}"}}\nsink: {{kind: parquet, path: /out}}')
    assert load_job(found).source.path == path
    assert relative_paths(read_job(found)) == []


def test_a_job_file_is_read_once_and_no_override_stays_in_it(write):
    path = write(SMALL)
    file = JobFile(path)
    path.write_text("name: another")
    changed = file.job(["name=changed", "retries.attempts=7"])
    assert (changed.name, changed.retries.attempts) == ("changed", 7)
    assert file.job().name == "doggos"
    assert file.job().retries.attempts != 7
    assert file.job() is file.job([])
    assert file.job().sink.path == "s3://bucket/predictions"


JOB = """# nightly
name: counted   # its name
source:
  kind: csv
  path: "data/day {partition}/"  # in quotes
sink: {kind: parquet, path: out}
state: ./state
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "job.yaml"


def test_only_the_paths_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(JOB)
    before, here = load_job(path), path.parent
    paths = [f"source.path: {here}/data/day {{partition}}/", f"sink.path: {here}/out", f"state: {here}/state"]
    assert write_absolute_paths(path) == paths
    text = path.read_text()
    assert text.startswith("# nightly\nname: counted   # its name\nsource:\n  kind: csv\n  path: ")
    assert "  # in quotes\n" in text
    assert relative_paths(read_job(path)) == []
    monkeypatch.chdir("/")
    assert load_job(path) == before
    assert [entry.name for entry in here.iterdir()] == ["job.yaml"]


def test_a_date_in_a_mapping_on_one_line_keeps_its_braces(path: Path) -> None:
    path.write_text('name: a\nsource: {kind: csv, path: "in/{partition}"}\nsink: {kind: parquet, path: "out, [new]"}\n')
    write_absolute_paths(path)
    found = read_job(path)
    assert found["source"]["path"] == f"{path.parent}/in/{{partition}}"
    assert found["sink"]["path"] == f"{path.parent}/out, [new]"


def test_a_path_behind_an_anchor_is_left_to_the_user(path: Path) -> None:
    text = "name: a\nsource: &files {kind: csv, path: in}\nsink: {kind: parquet, path: &out out}\nstate: *out\n"
    path.write_text(text)
    with pytest.raises(JobError, match="anchors"):
        write_absolute_paths(path)
    assert path.read_text() == text
