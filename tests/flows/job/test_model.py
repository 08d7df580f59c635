"""The job file: what it may say, and what is said about a wrong one."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from pydantic import ValidationError

from overnight.flows.job.loading import job_schema, load_job, read_job
from overnight.flows.job.model import Job
from overnight.flows.job.schedule import Schedule
from overnight.flows.runs.run import describe_run
from overnight.tasks.config.settings import Settings
from overnight.tasks.errors import JobError
from tests.flows.job.jobs import SMALL, WHOLE, complaint

SHIPPED = sorted((Path(__file__).parents[3] / "deployments" / "jobs").glob("*.yaml"))


def test_the_smallest_job_has_the_documented_defaults(write):
    job = load_job(write(SMALL))
    assert job.shuffle.kind == "none"
    assert (job.preprocess, job.inference, job.schedule, job.state) == ([], [], None, None)
    assert (job.checks.min_rows, job.checks.max_quarantined) == (1, 0.01)


def test_the_whole_job_of_the_design_is_read_as_written(write):
    job = load_job(write(WHOLE))
    assert job.source.path == "s3://bucket/raw/date={partition}/"
    assert job.inference[0].workers == (1, 4)
    assert job.inference[1].kwargs == {"depth": 20}
    assert (job.schedule.offset_days, job.schedule.deadline) == (-1, "06:00")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_job_file_is_valid_to_the_loader_and_to_editors(path):
    load_job(path)
    jsonschema.validate(read_job(path), job_schema())


def test_the_schema_refuses_what_the_loader_refuses(write):
    schema = job_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for more in (
        "colour: red",
        "preprocess: [{kind: resize_image}]",
        "preprocess: [{size: 4}]",
        "checks: {min_rows: -1}",
    ):
        path = write(SMALL + more)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(read_job(path), schema)
        complaint(path)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("preproces: []", r"preproces: unknown key \(did you mean preprocess\?\); the keys of the job file are name, "),
        ("checks: {min_row: 1}", r"checks.min_row: unknown key \(did you mean min_rows\?\); the keys of checks are "),
        ("checks: {min_rows: few}", "checks.min_rows: expected a whole number of at least 0, found 'few'"),
        ("checks: {max_quarantined: 2}", "checks.max_quarantined: expected a number from 0 to 1, found 2"),
        ("checks: 3", "checks: expected a mapping, found 3"),
        ("shuffle: {kind: row}", r"shuffle.kind: expected one of .*rows, found 'row' \(did you mean rows\?\)"),
        ("shuffle: rows", "shuffle: expected a mapping with kind: one of blocks, files, none, rows, found 'rows'"),
        ("preprocess: {kind: resize_image}", "preprocess: expected a list, found a mapping"),
        (
            "preprocess: [{kind: resize_image}]",
            "preprocess.0.size: is missing; expected a whole number above 0 or a list",
        ),
        ("preprocess: [{kind: resize_image, size: [4]}]", "preprocess.0.size: expected a whole number .*, found .4."),
        ("preprocess: [{filter_rows: {expression: x}}]", r"preprocess.0.kind: is missing \(write {kind: filter_rows, "),
        ("preprocess: [{kind: filter_rows, expression: 'x >'}]", "preprocess.0.expression: 'x >': at character 4"),
        (
            "preprocess: [{kind: derive_columns, columns: {a: foo(x)}}]",
            "columns: column a: 'foo.x.': .* no function foo",
        ),
        ("preprocess: [{kind: derive_columns, columns: {a: 3}}]", "preprocess.0.columns.a: expected text, found 3"),
        ("inference: [{kind: python, target: my_models}]", "inference.0.target: expected text like my_models:ResNet"),
        ("inference: [{kind: python, target: 'a:B', workers: [4, 1]}]", r"expected \[min, max\], found \[4, 1\]"),
        (
            "inference: [{kind: python, target: 'a:B', workers: many}]",
            "inference.0.workers: expected .*, found 'many'$",
        ),
        (
            "inference: [{kind: python, target: 'a:B', batch_size: 0}]",
            "batch_size: expected auto or a whole .*, found 0",
        ),
        ("inference: [{kind: python, target: 'a:B', name: 3d}]", "inference.0.name: expected text that matches"),
        ("schedule: {cron: '0 25 * * *'}", "schedule.cron: expected five cron fields, .*, found '0 25"),
        ("schedule: {cron: '@daily'}", "schedule.cron: expected five cron fields, .*, found '@daily'"),
        ("schedule: {cron: '0 0 30 2 *'}", "schedule.cron: expected five cron fields, .*, found '0 0 30 2"),
        (
            "schedule: {cron: '0 2 * * *', timezone: Berlin}",
            "schedule.timezone: expected an IANA name .*, found 'Berlin'",
        ),
        ("schedule: {timezone: UTC}", r"schedule.cron: is missing; expected text like 0 2"),
        ("schedule: {cron: '0 2 * * *', deadline: '26:00'}", "schedule.deadline: expected text like 06:00"),
        (
            "schedule: {cron: '0 2 * * *', notify: slack-webhook/a}",
            "deadline: expected a time of day, because notify is slack-webhook/a, found none; set one",
        ),
        ("schedule: {cron: '0 2 * * *', deadline: '06:00', notify: a}", "expected text like slack-webhook/team"),
        (
            "schedule: {cron: '0 2 * * *', catch_up: some}",
            "schedule.catch_up: expected one of all, latest, none, found",
        ),
        ("state: ''", "state: expected text that is not empty, found ''"),
        ("1: 2", "1: unknown key|1: expected"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed_and_what_was_found(write, more, expected):
    message = complaint(write(SMALL + more))
    assert re.search(expected, message)
    assert "\n" not in message


def test_a_cron_of_numbers_that_is_taken_without_prefect_is_taken_by_prefect_too():
    from prefect.client.schemas.schedules import CronSchedule

    def takes(schedule, cron):
        try:
            return bool(schedule(cron=cron))
        except ValidationError:
            return False

    fields = [*map(str, range(61)), *(f"*/{step}" for step in range(1, 61)), "1-5", "5-1", "0-10/5", "1,3", "*"]
    crons = [" ".join(field if at == place else "1" for at in range(5)) for field in fields for place in range(5)]
    taken = [cron for cron in crons if takes(Schedule, cron)]
    assert len(taken) > 200
    assert [cron for cron in taken if not takes(CronSchedule, cron)] == []


def test_every_problem_has_its_own_line(write):
    lines = complaint(write("name: A b\nsource: {kind: image, path: x}\nsnk: {}")).splitlines()
    assert lines[0].endswith("4 problems")
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["name", "source.kind", "sink", "snk"]


def test_a_value_of_an_unknown_key_is_not_repeated(write):
    assert "hunter2" not in complaint(write(SMALL + "password: hunter2"))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "source.path=s3://b/{date}",
            r"source.path: expected no placeholder but {partition} or \${ENV_VAR}, found {date}",
        ),
        (
            "sink.path=s3://b/{partition}",
            r"sink.path: expected no placeholder but \${ENV_VAR}, found {partition}; each",
        ),
        ("state=s3://b/{partition}", r"state: expected no placeholder"),
    ],
)
def test_a_placeholder_that_would_never_be_filled_is_refused(write, override, expected):
    assert re.search(expected, complaint(write(SMALL), override))


@pytest.mark.parametrize("key", ["sink.path", "state"])
def test_nothing_is_published_to_the_hub(write, key):
    assert f"{key}: expected a place to publish to, found hf://" in complaint(
        write(SMALL), f"{key}=hf://datasets/me/things"
    )


def test_several_models_need_names_of_their_own(write):
    without = WHOLE.replace("name: clip, ", "")
    assert "found none for inference.0 (image_embedding)" in complaint(write(without))
    assert "found resnet for inference.0 and inference.1" in complaint(
        write(WHOLE.replace("name: clip", "name: resnet"))
    )


def test_images_are_decoded_first_unless_the_job_does_it_itself(write):
    assert [step.kind for step in load_job(write(WHOLE)).steps] == ["resize_image"]
    without = WHOLE.replace("[{kind: resize_image, size: 224}]", "[]")
    assert [step.kind for step in load_job(write(without)).steps] == ["decode_image"]
    thumbnail = "{kind: python, target: 'my_steps:Shrink'}, {kind: resize_image, column: thumbnail"
    other = WHOLE.replace("{kind: resize_image", thumbnail)
    assert [step.kind for step in load_job(write(other)).steps] == ["decode_image", "python", "resize_image"]
    own = WHOLE.replace("[{kind: resize_image", "[{kind: decode_image, max_image_pixels: 99}, {kind: resize_image")
    assert load_job(write(own)).steps[0].max_image_pixels == 99
    table = load_job(write(SMALL.replace("images", "csv")))
    assert table.steps == []


@pytest.mark.parametrize(
    "override",
    [
        "inference.1.batch_size=8",
        "inference.0.workers=2",
        "inference.0.num_gpus=0",
        "inference.0.num_cpus=2",
        "inference.0.memory=1000",
        "inference.0.resources={a: 1}",
        "inference.0.accelerator_type=A100",
        "sink.path=s3://other",
        "sink.compression=snappy",
        "sink.rows_per_part=9",
        "sink.seconds_per_part=9",
        "sink.target_file_size=9",
        "sink.grace_seconds=9",
        "schedule=",
        "checks.min_rows=5",
        "source.anonymous=true",
        "source.on_changed=fail",
        "name=cats",
        "state=s3://other",
        "preprocess.0.resample=bicubic",
    ],
)
def test_settings_of_speed_and_place_do_not_change_results(write, override):
    path = write(WHOLE)
    assert load_job(path, [override]).result_settings() == load_job(path).result_settings()


@pytest.mark.parametrize(
    "override",
    [
        "inference.1.kwargs.depth=21",
        "inference.0.model=other",
        "inference.0.name=other",
        "inference.0.dtype=float16",
        "preprocess.0.size=100",
        "preprocess=[]",
        "source.path=s3://other/{partition}",
        "source.label_from=",
        "shuffle.seed=1",
        "sink.keep_columns=[image]",
        "sink.kind=delta",
    ],
)
def test_settings_of_content_change_results(write, override):
    path = write(WHOLE)
    assert load_job(path, [override]).result_settings() != load_job(path).result_settings()


@pytest.mark.parametrize(
    ("override", "told"),
    [
        (
            "inference.0.prepare=beside",
            r"inference.0.prepare: is called placement now; expected one of auto, sep",
        ),
        ("sink.keep=[image]", r"sink.keep: is called keep_columns now; expected a list"),
    ],
)
def test_a_former_name_of_a_setting_is_refused_with_the_new_one(write, override, told):
    with pytest.raises(JobError, match=told):
        load_job(write(WHOLE), [override])


@pytest.mark.parametrize(
    ("former", "name", "expected"),
    [
        ("requests_at_once", "max_concurrent_requests", "a whole number above 0"),
        ("patience_seconds", "retry_timeout_seconds", "a number above 0"),
    ],
)
def test_a_former_name_of_a_chat_model_s_setting_is_refused_with_the_new_one(write, former, name, expected):
    model = f"{{kind: openai, model: small, user: '{{text}}', base_url: 'http://host/v1', {former}: 4}}"
    with pytest.raises(JobError, match=f"inference.0.{former}: is called {name} now; expected {expected}"):
        load_job(write(SMALL + f"inference: [{model}]"))


def test_a_setting_with_a_new_name_leaves_fingerprints_as_they_were(write):
    found = load_job(write(WHOLE), ["sink.keep_columns=[image]"]).result_settings()["sink"]
    assert (found["keep"], "keep_columns" in found) == (["image"], False)


def test_operational_settings_are_settings_of_their_class():
    def below(leaf: type[Settings]) -> Iterator[type[Settings]]:
        for each in leaf.__subclasses__():
            yield from (each, *below(each))

    for leaf in below(Settings):
        assert set(vars(leaf).get("operational", ())) <= set(leaf.model_fields), leaf


def test_the_name_of_a_single_model_names_no_columns(write):
    text = SMALL + "inference: [{kind: python, target: 'a:B'}]"
    path = write(text)
    assert load_job(path, ["inference.0.name=x"]).result_settings() == load_job(path).result_settings()


def test_settings_are_json_and_read_back_as_the_same_job(write):
    job = load_job(write(WHOLE))
    assert Job.model_validate(json.loads(json.dumps(job.settings()))) == job
    assert json.loads(json.dumps(job.result_settings())) == job.result_settings()


def test_environment_variables_are_neither_read_nor_shown(write, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    job = load_job(write(SMALL.replace("s3://bucket/predictions", "${SECRET}/x")))
    assert job.sink.path == "${SECRET}/x"
    assert "hunter2" not in json.dumps(job.settings())


@pytest.mark.parametrize(
    ("source", "steps"),
    [
        ({"kind": "images", "path": "in"}, ["decode_image"]),
        ({"kind": "uris", "path": "in", "content": "image"}, ["decode_image"]),
        ({"kind": "uris", "path": "in", "content": "text"}, []),
        ({"kind": "csv", "path": "in"}, []),
    ],
)
def test_image_files_are_decoded_unasked_and_nothing_else_is(source: dict[str, str], steps: list[str]):
    job = Job.model_validate({"name": "it", "source": source, "sink": {"kind": "parquet", "path": "out"}})
    assert [step.kind for step in job.steps] == steps


@pytest.mark.parametrize("partition", ["all", "2026-11-19"])
def test_a_job_knows_the_ledger_that_its_runs_write(write, partition):
    job = load_job(write(SMALL.replace("/date={partition}", "") if partition == "all" else SMALL))
    assert job.ledger(partition) == describe_run(job, partition).ledger
    assert str(job.ledger("2026-11-19")) == "s3://bucket/predictions/_overnight/date=2026-11-19"
    assert str(job.ledger("all")) == "s3://bucket/predictions/_overnight/all"


def test_a_sample_lies_beside_the_ledgers_and_never_in_the_sink(write):
    job = load_job(write(SMALL))
    assert str(job.output_location(is_sample=False)) == "s3://bucket/predictions"
    assert str(job.output_location(is_sample=True)) == "s3://bucket/predictions/_overnight/samples/published"
