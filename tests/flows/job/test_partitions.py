"""What `partitions` takes, what it refuses, and which names a job then has."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from overnight.flows.job.loading import job_schema, load_job
from overnight.flows.job.model import Job
from overnight.flows.job.parameters import partition_choices
from overnight.flows.job.partitions import Partitions
from overnight.tasks.errors import JobError
from tests.jobs import write_job


def job(partitions: Any, path: str = "/in/{partition}", **more: Any) -> Job:
    source = {"kind": "csv", "path": path}
    sink = {"kind": "parquet", "path": "/out"}
    return Job.model_validate({"name": "x", "source": source, "sink": sink, "partitions": partitions, **more})


FORMS: list[tuple[Any, str]] = [
    ({"every": "hour"}, "date,hour"),
    ({"every": "week", "start": "2026-W40", "timezone": "Europe/Berlin"}, "week"),
    ({"region": ["eu", "us"]}, "region"),
    ({"values": ["eu", "us"]}, "value"),
    ({"values": {"folders": "/in"}}, "value"),
    ({"date": "day", "region": ["eu", "us"]}, "date,region"),
    ({"hour": "hour", "region": {"file": "/regions.txt"}}, "date,hour,region"),
    ({"every": "month", "values": {"region": ["eu"]}}, "month,region"),
]


@pytest.mark.parametrize(("partitions", "columns"), FORMS)
def test_each_form_names_columns_and_is_written_so_that_it_reads_back(partitions: Any, columns: str) -> None:
    one = job(partitions)
    assert one.partitions
    assert one.sink.partition_column == ",".join(one.partitions.columns) == columns
    again = Job.model_validate(one.mapping())
    assert again == one
    assert again.sink.partition_column == columns
    assert "partition_column" not in one.mapping()["sink"]


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ({}, {}, "expected every, values or both"),
    ({"every": "minute"}, {}, "hour"),
    ({"evry": "hour"}, {}, "evry"),
    ({"date": "hour"}, {}, "date"),
    ({"every": "hour", "timezone": "Europe/Berlin"}, {}, "hours are of UTC"),
    ({"every": "day", "timezone": "Berlin"}, {}, "IANA name"),
    ({"every": "hour", "start": "2026-11-19"}, {}, "start: expected the first hour, as 2026-11-19T05"),
    ({"region": ["eu"], "start": "2026-11-19"}, {}, "start: expected every"),
    ({"region": ["eu"], "model": ["a"]}, {}, "one list of values at most"),
    ({"hour": ["05"]}, {}, "column's name other than"),
    ({"region": ["eu", "eu"]}, {}, "each once"),
    ({"region": []}, {}, "at least one value"),
    ({"region": ["e/u"]}, {}, "found 'e/u'"),
    ({"region": ["2026-11-19"]}, {}, "no dates"),
    ({"region": {"file": "a", "folders": "b"}}, {}, "either file or folders"),
    ({"every": "hour"}, {"path": "/in/{date}"}, "each of {hour}"),
    ({"date": "day", "region": ["eu"]}, {"path": "/in/{date}"}, "every partition would read the same inputs"),
    ({"every": "hour"}, {"path": "/in/{date}/{hour}/{region}"}, "expected no placeholder but"),
    (None, {"path": "/in/{date}"}, "expected no placeholder but {partition}"),
    ({"every": "hour"}, {"schedule": {"cron": "5 * * * *", "offset_days": 0}}, "offset_days"),
    ({"every": "hour"}, {"sink": {"kind": "parquet", "path": "/o", "partition_column": "day"}}, "partition_column"),
    (None, {"sink": {"kind": "parquet", "path": "/o", "partition_column": "a,b"}}, "expected one name"),
]


@pytest.mark.parametrize(("partitions", "more", "message"), WRONG)
def test_what_a_job_cannot_have_is_refused_with_the_reason(partitions: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        job(partitions, **more)
    assert message in str(caught.value)


def test_the_schema_takes_each_form() -> None:
    schema = job_schema()
    validator = jsonschema.Draft202012Validator({"$ref": "#/$defs/Partitions", "$defs": schema["$defs"]})
    for partitions, _ in FORMS:
        validator.validate(partitions)
    for wrong in ({"values": "eu"}, {"values": [1]}, {"every": "year"}):
        assert not validator.is_valid(wrong)


def test_a_job_without_the_key_keeps_its_fingerprint_its_settings_and_its_placeholders() -> None:
    plain = job(None)
    assert plain.sink.partition_column == "date"
    assert "partitions" not in plain.settings()
    assert plain.result_settings()["sink"] == {"kind": "parquet"}


def test_values_come_from_a_file_and_from_folders_of_now(tmp_path: Path) -> None:
    (tmp_path / "regions.txt").write_text("us\n# old: asia\neu # first\n\n")
    for name in ("region=eu", "us", "_SUCCESS", ".tmp"):
        (tmp_path / "in" / name).mkdir(parents=True)
    (tmp_path / "in" / "readme.txt").touch()
    of_file = Partitions.model_validate({"region": {"file": str(tmp_path / "regions.txt")}})
    of_folders = Partitions.model_validate({"region": {"folders": str(tmp_path / "in")}})
    assert of_file.value_names() == of_folders.value_names() == ("eu", "us")
    (tmp_path / "in" / "asia").mkdir()
    assert of_folders.named([]) == ["asia", "eu", "us"]
    (tmp_path / "in" / "north america").mkdir()
    with pytest.raises(JobError, match=r"partitions\.values\.region, of .*in: .*found 'north america'"):
        of_folders.value_names()


def test_relative_places_of_values_are_those_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_job(
        tmp_path / "job.yaml",
        {
            "name": "x",
            "source": {"kind": "csv", "path": "in/{region}"},
            "sink": {"kind": "parquet", "path": "out"},
            "partitions": {"region": {"folders": "in"}},
        },
    )
    partitions = load_job(path).partitions
    assert partitions
    assert partitions.model_dump()["values"]["region"]["folders"] == str(tmp_path / "in")


def test_names_of_other_partitions_are_refused() -> None:
    both = Partitions.model_validate({"date": "day", "region": ["eu", "us"], "start": "2026-11-19"})
    assert both.checked("2026-11-19,eu") == "2026-11-19,eu"
    for name, message in {
        "2026-11-19": "expected a name such as 2026-11-19,eu",
        "eu": "expected a name such as 2026-11-19,eu",
        "2026-11-19T05,eu": "expected a day",
        "2026-11-19,asia": "expected one of eu, us, found asia",
        "2026-11-18,eu": "expected 2026-11-19 or later",
        "all": "expected a name",
    }.items():
        with pytest.raises(JobError, match=message):
            both.checked(name)


def test_the_form_offers_the_values_and_takes_the_names_of_the_job_alone() -> None:
    regions = partition_choices(Partitions.model_validate({"region": ["eu", "us"]}))
    assert regions[1]["enum"] == ["eu", "us"]
    pattern = partition_choices(Partitions.model_validate({"hour": "hour", "region": ["eu", "us"]}))[1]["pattern"]
    names = ["2026-11-19T05,eu", "2026-11-19T24,eu", "2026-11-19T05", "2026-11-19T05,asia", "2026-02-30T05,eu"]
    assert [name for name in names if re.search(str(pattern), name)] == names[:1]
