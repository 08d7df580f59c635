"""Relative paths of a job file become full ones, and nothing else in the file changes."""

from pathlib import Path

import pytest

from overnight.flows.job.absolute_paths import write_absolute_paths
from overnight.flows.job.loading import load_job, read_job, relative_paths
from overnight.tasks.errors import JobError

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
