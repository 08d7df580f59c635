"""A job file as it is read: YAML, overrides and relative paths."""

import re

import pytest

from overnight.flows.job.loading import JobFile, load_job, read_job, relative_paths
from overnight.flows.job.yaml_loader import parse_yaml
from tests.flows.job.jobs import SMALL, WHOLE, complaint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "found an empty file"),
        ("- name", "found a list"),
        ("a: [", r"job.yaml:1: not valid YAML"),
        ("name: a\nsource: {path: in/{partition}/}", r"job.yaml:2: .*Write a value with \{partition\} or .* in quotes"),
        ("source: {path: ${HOME}/in}", r"job.yaml:1: .*Write a value with .* or \$\{VAR\} in quotes"),
        ("name: a\nname: b", r"job.yaml:2: not valid YAML: name is written twice"),
        ("name: a\nsource: {path: x, path: y}", r"job.yaml:2: not valid YAML: path is written twice"),
        ("name: !!python/object:os.system {}", "not valid YAML"),
        ("name: \x00", "not valid YAML"),
    ],
)
def test_what_is_no_mapping_is_refused_with_its_line(write, text, expected):
    assert re.search(expected, complaint(write(text)))


def test_a_missing_file_says_so(tmp_path):
    assert "expected a job file, found no file" in complaint(tmp_path / "none.yaml")
    assert "cannot read" in complaint(tmp_path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NO", "NO"),
        ("on", "on"),
        ("true", True),
        ("16:30", "16:30"),
        ("2026-11-19", "2026-11-19"),
        ("007", "007"),
        ("1_000", "1_000"),
        ("12", 12),
        ("-3", -3),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("1.", 1.0),
        (".inf", float("inf")),
        ("1.2.3", "1.2.3"),
        ("~", None),
        ("", None),
        ("'12'", "12"),
        ("{a: &x {b: 1}, c: {<<: *x, d: 2}}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
    ],
)
def test_yaml_values_are_what_they_look_like(text, value):
    found = parse_yaml(text, "text")
    assert (type(found), found) == (type(value), value)


def test_settings_are_overridden_by_dotted_keys(write):
    overrides = [
        "inference.1.batch_size=8",
        "checks.min_rows=5",
        "source.path=s3://other/",
        "inference.0.workers=[2, 3]",
    ]
    job = load_job(write(WHOLE), [*overrides, "schedule=", "inference.1.kwargs.width=0.5"])
    assert (job.inference[1].batch_size, job.checks.min_rows, job.source.path) == (8, 5, "s3://other/")
    assert (job.inference[0].workers, job.schedule) == ((2, 3), None)
    assert job.inference[1].kwargs == {"depth": 20, "width": 0.5}
    assert load_job(write(SMALL), ["checks.min_rows=7"]).checks.min_rows == 7


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("checks.min_row=1", r"checks.min_row: unknown key"),
        ("shufle.kind=rows", r"shufle: unknown key \(did you mean shuffle\?\)"),
        ("inference.2.batch_size=8", "expected a number from 0 to 1 after inference, found 2"),
        ("inference.resnet.batch_size=8", "expected a number from 0 to 1 after inference, found resnet"),
        ("preprocess.0.size.x=8", "preprocess.0.size is 224 and has no keys"),
        ("inference", "expected KEY=VALUE"),
        ("checks={min_rows: [", "setting checks:1: not valid YAML"),
    ],
)
def test_an_override_that_fits_nowhere_is_refused(write, override, expected):
    assert re.search(expected, complaint(write(WHOLE), override))


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("inference.1.kwargs.api_key=canary", "inference.1.kwargs.api_key"),
        ("inference.1.kwargs={width: 1, nested: [{password: 1234}]}", "inference.1.kwargs.nested.0.password"),
        ("sink.path=s3://me:canary@bucket/out", "sink.path"),
    ],
)
def test_a_secret_written_out_in_an_override_is_refused_and_not_repeated(write, override, key):
    told = complaint(write(WHOLE), override)
    assert f"setting {key}: expected no secret, found one" in told
    assert "canary" not in told
    assert "1234" not in told


def test_an_override_may_name_the_variable_that_holds_a_secret(write):
    job = load_job(write(WHOLE), ["inference.1.kwargs.api_key=${API_KEY}"])
    assert job.inference[1].kwargs["api_key"] == "${API_KEY}"


def test_an_override_of_a_list_that_is_not_there_says_so(write):
    assert "inference is empty in the job file" in complaint(write(SMALL), "inference.0.batch_size=8")


def test_relative_paths_are_taken_from_the_working_directory(write, tmp_path):
    text = (
        'name: a\nsource: {kind: csv, path: "raw/{partition}/"}\nsink: {kind: parquet, path: ./out}\nstate: ../${WHERE}'
    )
    job = load_job(write(text))
    assert job.source.path == f"{tmp_path}/raw/{{partition}}/"
    assert job.sink.path == f"{tmp_path}/out"
    assert job.state == f"{tmp_path.parent}/${{WHERE}}"
    assert relative_paths(read_job(write(text))) == [
        "source.path: raw/{partition}/",
        "sink.path: ./out",
        "state: ../${WHERE}",
    ]


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
