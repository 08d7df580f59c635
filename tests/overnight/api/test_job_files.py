"""A job as a path, as classes or as a dictionary: what a call from Python makes of it."""

import contextlib
from datetime import date
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import ValidationError

import overnight
from overnight.api.job_files import as_overrides, prepared
from overnight.flows.job.loading import load_job
from overnight.flows.job.yaml_loader import parse_yaml
from overnight.tasks.config.settings import Leaf
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.preprocess.kinds import Step
from overnight.tasks.shuffle.kinds import Shuffle
from overnight.tasks.write.kinds import AnySink
from tests.flows.job.jobs import SMALL, WHOLE
from tests.flows.shipped_jobs import JOBS

ROWS = [{"n": 1}, {"n": 2}]
DATED = {"source": {"kind": "csv", "path": "/in/{partition}"}}


def job_dict(folder: Path, **more: Any) -> dict[str, Any]:
    return {"name": "numbers", "sink": {"kind": "parquet", "path": str(folder / "out")}, **more}


KINDS = {
    overnight.sources: Source,
    overnight.steps: Step,
    overnight.models: AnyPredictor,
    overnight.sinks: AnySink,
    overnight.shuffles: Shuffle,
}


@pytest.mark.parametrize(("module", "union"), KINDS.items())
def test_every_kind_of_a_job_file_has_a_class_in_its_module(module: Any, union: Any) -> None:
    kinds = {leaf for leaf in get_args(get_args(union)[0]) if leaf.__module__.startswith("overnight.")}
    named = {getattr(module, name) for name in module.__all__}
    assert {found for found in named if issubclass(found, Leaf)} == kinds


def test_every_name_of_the_package_is_there_and_listed() -> None:
    assert {name for name in overnight.__all__ if getattr(overnight, name, None) is None} == set()
    assert set(overnight.__all__) <= set(dir(overnight))
    with pytest.raises(AttributeError, match="has no attribute 'runn'"):
        _ = overnight.runn  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", [SMALL, WHOLE, *(job.read_text() for job in sorted(JOBS.glob("*.yaml")))])
def test_a_job_that_is_written_as_yaml_reads_back_equal_without_its_defaults(text: str) -> None:
    job = overnight.Job.model_validate(parse_yaml(text, "the job"))
    written = job.to_yaml()
    again = parse_yaml(written, "the job")
    assert overnight.Job.model_validate(again) == job
    assert [key for key in again if key not in yaml.safe_load(text)] == []
    assert list(again) == [key for key in overnight.Job.model_fields if key in again]
    assert [again[key].get("kind") for key in ("source", "sink")] == [job.source.kind, job.sink.kind]


def test_classes_make_the_same_job_as_a_file(tmp_path: Path) -> None:
    job = overnight.Job(
        name="doggos",
        source=overnight.sources.Images(path="s3://bucket/raw/date={partition}/"),
        sink=overnight.sinks.Parquet(path="s3://bucket/predictions"),
    )
    (tmp_path / "job.yaml").write_text(SMALL)
    assert overnight.load(tmp_path / "job.yaml") == overnight.load(job) == job
    assert yaml.safe_load(job.to_yaml()) == yaml.safe_load(SMALL)


def test_yaml_keeps_variables_and_texts_that_look_like_other_types() -> None:
    columns = {"country": "'NO'", "price": "1e5"}
    job = overnight.Job(
        name="a",
        source=overnight.sources.Sql(url="postgresql://u:${PASSWORD}@h/d", query="SELECT 1", key="id"),
        preprocess=[overnight.steps.DeriveColumns(columns=columns)],
        checks={"agreement": {"with": "published", "at_least": 0.9, "column": "label"}},
        sink=overnight.sinks.Parquet(path="${OUT}/é", keep_columns=["no", "12"]),
        schedule=overnight.Schedule(cron="0 2 * * *", deadline="16:30"),
    )
    written = job.to_yaml()
    assert "u:${PASSWORD}@h/d" in written
    assert overnight.Job.model_validate(parse_yaml(written, "the job")) == job


def test_relative_paths_of_a_dictionary_are_those_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = {"kind": "csv", "path": "in/{partition}/"}
    job = {"name": "a", "source": source, "sink": {"kind": "parquet", "path": Path("out")}}
    with prepared(job, {"source.allow_empty": True}, "2026-11-19") as found:
        assert found.path.exists()
        assert load_job(found.path, found.settings) == found.job
        assert (found.job.source.path, found.partition) == (f"{tmp_path}/in/{{partition}}/", "2026-11-19")
        assert found.job.source.allow_empty
    assert not found.path.exists()


def test_settings_become_the_overrides_of_the_command_line() -> None:
    settings = {"inference.0.batch_size": 8, "source.types": {"zip": "string"}, "reason": "NO", "day": date(2026, 1, 2)}
    overrides = as_overrides(settings)
    values = [parse_yaml(line.partition("=")[2], "") for line in overrides]
    assert values == [8, {"zip": "string"}, "NO", "2026-01-02"]
    assert as_overrides(["a=1"]) == ("a=1",)


@pytest.mark.parametrize(
    ("source", "partition", "folder"),
    [
        ({}, None, "all"),
        ({}, "all", "all"),
        ({}, "2026-11-19", "{partition}"),
        (DATED, "2026-11-19", "{partition}"),
        (DATED, None, "{partition}"),
        (DATED, "all", "all"),
    ],
)
def test_data_replaces_the_source_and_is_removed_after_a_run_that_succeeds(
    tmp_path: Path, source: dict[str, Any], partition: str | None, folder: str
) -> None:
    with prepared(job_dict(tmp_path, **source), (), partition, ROWS) as found:
        data = found.job.source
        assert isinstance(data, overnight.sources.Parquet)
        assert data.path.startswith(f"{tmp_path}/out/_overnight/data/{folder}/")
        assert [file.path for file in data.files(found.partition)] == ["data.parquet"]
        assert (tmp_path / "out/_overnight").stat().st_mode & 0o777 == 0o700
    assert not Path(data.location(found.partition).uri).exists()


def test_a_job_of_classes_needs_no_source_if_its_rows_come_as_data(tmp_path: Path) -> None:
    job = overnight.Job(name="a", sink=overnight.sinks.Parquet(path=f"{tmp_path}/out"))
    assert yaml.safe_load(job.to_yaml()) == {"name": "a", "sink": {"kind": "parquet", "path": f"{tmp_path}/out"}}
    for partition, folder in ((None, "all"), ("2026-11-19", "{partition}")):
        with prepared(job, (), partition, ROWS) as found:
            assert found.job.source.path.startswith(f"{tmp_path}/out/_overnight/data/{folder}/")
    with pytest.raises(overnight.JobError, match="expected a source in the job, or rows as data="), prepared(job):
        pass


def test_a_job_file_needs_a_source(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: a\nsink: {kind: parquet, path: out}\n")
    with pytest.raises(overnight.JobError, match="source: is missing; expected"):
        overnight.load(tmp_path / "job.yaml")


def test_data_stays_after_a_failure_and_the_same_data_is_the_same_input(tmp_path: Path) -> None:
    inputs, version = [], []
    for rows in (ROWS, [{"n": 1}, {"n": 2}], [{"n": 3}]):
        with contextlib.suppress(KeyError), prepared(job_dict(tmp_path), (), None, rows) as found:
            inputs.append(found.job.ingredients())
            version.append(next(iter(found.job.source.files("all"))).version)
            raise KeyError
    assert inputs[0] == inputs[1] != inputs[2]
    assert version[0] == version[1]
    assert len(list((tmp_path / "out/_overnight/data/all").iterdir())) == 2
    with prepared(job_dict(tmp_path), (), None, ROWS):
        pass
    assert not (tmp_path / "out/_overnight/data/all").exists()


@pytest.mark.parametrize(
    ("job", "arguments", "fact"),
    [
        (7, {}, "found int"),
        ("no.yaml", {}, "no.yaml: expected a job file, found no file"),
        ({"name": "a"}, {}, "the job: 2 problems"),
        (job_dict(Path("/x"), sinc=1), {"data": ROWS}, r"the job: sinc: .*did you mean sink"),
        (job_dict(Path("/x")), {"settings": {"source.columns": ["n"]}, "data": ROWS}, "expected none of source"),
        (job_dict(Path("/x")), {"partition": "2026-13-01", "data": ROWS}, "partition: expected a day"),
    ],
)
def test_what_is_no_job_is_refused(job: Any, arguments: dict[str, Any], fact: str) -> None:
    with pytest.raises(overnight.JobError, match=fact), prepared(job, **arguments):
        pass


def test_a_class_is_named_by_its_module_and_one_of_a_notebook_is_refused() -> None:
    assert overnight.models.Python(target=Path).target == f"{Path.__module__}:Path"
    own = type("Model", (), {"__module__": "__main__"})
    for target in (own, "__main__:Model"):
        with pytest.raises(ValidationError, match=r"found __main__:Model\. Write it to a file"):
            overnight.models.Python(target=target)


def test_a_preview_reads_data_from_memory_and_leaves_nothing(tmp_path: Path) -> None:
    found = overnight.preview(job_dict(tmp_path), 1, data=ROWS)
    assert found.table["n"].to_pylist() == [1]
    assert list(tmp_path.iterdir()) == []
