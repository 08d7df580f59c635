"""The job file: what it may say, and what is said about a wrong one."""

import json
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
from tests.flows.job.jobs import SMALL, WHOLE, complaint
from tests.jobs import load

SHIPPED = sorted((Path(__file__).parents[3] / "deployments" / "jobs").glob("*.yaml"))


def test_the_smallest_job_has_the_documented_defaults(write):
    job = load_job(write(SMALL))
    assert job.shuffle.kind == "none"
    assert (job.preprocess, job.inference, job.schedule, job.state) == ([], [], None, None)
    assert (job.checks.min_rows, job.checks.max_quarantined) == (1, 0.01)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_job_file_is_valid_to_the_loader_and_to_editors(path):
    load_job(path)
    jsonschema.Draft202012Validator(job_schema()).validate(read_job(path))


def test_the_schema_refuses_what_the_loader_refuses(write):
    validator = jsonschema.Draft202012Validator(job_schema())
    validator.check_schema(validator.schema)
    steps = ["preprocess: [{kind: resize_image}]", "preprocess: [{size: 4}]"]
    for more in ("colour: red", *steps, "checks: {min_rows: -1}"):
        path = write(SMALL + more)
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(read_job(path))
        complaint(path)


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


def test_images_are_decoded_first_unless_the_job_does_it_itself(tmp_path):
    def kinds(*preprocess, **source):
        job = load(tmp_path, source={"kind": "images", "path": "in", **source}, preprocess=list(preprocess))
        return [step.kind for step in job.steps]

    resize = {"kind": "resize_image", "size": 8}
    assert kinds() == kinds(kind="uris", content="image") == ["decode_image"]
    assert kinds(kind="uris", content="text") == kinds(kind="csv") == []
    assert kinds(resize) == ["resize_image"]
    own = {"kind": "python", "target": "my_steps:Shrink"}
    assert kinds(own, {**resize, "column": "thumbnail"}) == ["decode_image", "python", "resize_image"]
    assert kinds({"kind": "decode_image", "max_image_pixels": 99}, resize) == ["decode_image", "resize_image"]


OF_SPEED_AND_PLACE = [
    *("inference.1.batch_size=8", "inference.0.workers=2", "inference.0.num_gpus=0", "inference.0.num_cpus=2"),
    *("inference.0.memory=1000", "inference.0.resources={a: 1}", "inference.0.accelerator_type=A100", "name=cats"),
    *("sink.path=s3://other", "sink.compression=snappy", "sink.rows_per_part=9", "sink.seconds_per_part=9"),
    *("sink.target_file_size=9", "sink.grace_seconds=9", "schedule=", "checks.min_rows=5", "source.anonymous=true"),
    *(
        "source.on_changed=fail",
        "state=s3://other",
        "storage={s3://other: {endpoint: 'https://minio:9000', profile: team}}",
        "preprocess.0.resample=bicubic",
        "source.wait_for={file: _SUCCESS}",
    ),
]
OF_CONTENT = [
    *("inference.1.kwargs.depth=21", "inference.0.model=other", "inference.0.name=other", "inference.0.dtype=float16"),
    *("preprocess.0.size=100", "preprocess=[]", "source.path=s3://other/{partition}", "source.label_from="),
    *("shuffle.seed=1", "sink.keep_columns=[image]", "sink.kind=delta"),
]


def test_settings_of_content_change_results_and_those_of_speed_and_place_do_not(write):
    path = write(WHOLE)
    before = load_job(path).result_settings()
    changing = [one for one in OF_SPEED_AND_PLACE + OF_CONTENT if load_job(path, [one]).result_settings() != before]
    assert changing == OF_CONTENT


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


@pytest.mark.parametrize("partition", ["all", "2026-11-19"])
def test_a_job_knows_the_ledger_that_its_runs_write(write, partition):
    job = load_job(write(SMALL.replace("/date={partition}", "") if partition == "all" else SMALL))
    assert job.ledger(partition) == describe_run(job, partition).ledger
    assert str(job.ledger("2026-11-19")) == "s3://bucket/predictions/_overnight/date=2026-11-19"
    assert str(job.ledger("all")) == "s3://bucket/predictions/_overnight/all"


def test_a_sample_lies_beside_the_ledgers_and_never_in_the_sink(write):
    job = load_job(write(SMALL))
    assert str(job.published.files) == "s3://bucket/predictions"
    assert str(job.samples.files) == "s3://bucket/predictions/_overnight/samples/published"
