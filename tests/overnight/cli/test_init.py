"""`overnight init` as a script and a person meet it."""

import io
import json
import os
import pty
import sys
import textwrap
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow.parquet as pq
import pytest

from overnight.cli.init import prompt_for_answers
from overnight.cli.init_choices import CHAINS, Answers, offers, task_choices
from overnight.cli.init_look import look
from overnight.cli.init_rows import source_kinds
from overnight.cli.init_templates import create
from overnight.flows.deploy.prefect_yaml import deployable
from overnight.flows.job.loading import load_job
from overnight.tasks.errors import JobError
from overnight.tasks.infer.kinds import AnyPredictor
from tests.flows.conftest import Overnight


@pytest.mark.slow
def test_what_init_writes_is_valid_and_runs_on_the_inputs_named(
    overnight: Overnight, pictures: Path, tmp_path: Path
) -> None:
    done = overnight("init", "--path", "in/date={partition}", "--work", "python", "--name", "brightness")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("wrote brightness.yaml\nwrote my_models.py\n")
    assert overnight("validate", "brightness.yaml").returncode == 0
    ran = overnight("run", "brightness.yaml", "--partition", "2026-01-02", "--json")
    assert ran.returncode == 0, ran.stderr
    [file] = json.loads(ran.stdout)["files"]
    rows = pq.read_table(tmp_path / "predictions/brightness" / file, partitioning=None).to_pylist()
    found = {row["row_id"].split("/")[1]: row["brightness"] for row in rows}
    assert found == {f"{i:02}.png": i * 20.0 for i in range(12)}


def test_a_job_in_another_folder_reads_the_same_inputs_from_there(
    overnight: Overnight, pictures: Path, tmp_path: Path
) -> None:
    done = overnight("init", "jobs/My Photos", "--path", "in/date={partition}/", "--work", "image_embedding")
    assert done.returncode == 0, done.stderr
    assert "cd jobs/My Photos\n  overnight preview my-photos.yaml\n  overnight run my-photos.yaml" in done.stdout
    job = load_job(tmp_path / "jobs/My Photos/my-photos.yaml")
    assert (job.name, job.source.path) == ("my-photos", f"{tmp_path}/in/date={{partition}}/")
    assert job.inference[0].model == "openai/clip-vit-base-patch32"
    assert job.schedule is not None


def test_a_chain_crops_what_its_first_model_finds_for_the_second(tmp_path: Path) -> None:
    [job_file] = create(Answers(tmp_path, "things", "in", "images", "object_classification", "a/b, c/d"))
    find, crop, label = load_job(job_file).inference
    assert (find.kind, find.name, find.model) == ("object_detection", "found", "a/b")
    assert (crop.kind, crop.boxes) == ("crop_boxes", "found_boxes")
    assert (label.kind, label.name, label.model) == ("image_classification", "object", "c/d")


# What each source gives beside `row_id`, and each step of what it reads.
GIVES = {"images": {"image"}, "audio": {"audio"}, "video": {"video"}, "pdf": {"pdf"}, "text": {"text"}}
MAKES = {
    "decode_image": {"image"},
    "resize_image": {"image"},
    "sample_frames": {"image", "frame", "seconds"},
    "decode_audio": {"audio", "sampling_rate", "start_seconds", "end_seconds"},
    "pdf_text": {"text", "page", "pages"},
    "split_text": {"text", "chunk", "chunk_start", "chunk_end"},
}
MODELS_IN_FILES = ("torch", "onnx", "keras", "sklearn")
# What these files hold may not be what a model reads: a feature of bytes is no text until it is named as one.
OF_OWN_MODELS_ALONE = ("numpy", "tfrecord")
OPTIONS = ("path", "source", "work", "model", "text_column", "name", "schedule", "timezone")
CSV = {"path": "a.csv", "source": "csv", "work": "none", "name": "it"}
OFFERED = [(source, work) for source in source_kinds() for work in task_choices(source)]


def batch_of(column: str) -> dict[str, np.ndarray]:
    """Three rows of what a skeleton reads."""
    sounds = np.full((3, 1, 40), 7, np.float32)
    columns = {"image": np.full((3, 4, 4, 3), 7, np.uint8), "audio": sounds}
    return {column: columns.get(column, np.array(["a", "bc", "def"], object))}


@pytest.mark.parametrize(("source", "work"), OFFERED)
def test_every_answer_makes_a_job_whose_model_finds_its_columns(
    source: str, work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = "" if source in GIVES else "the text" if work in ("chat", "openai", "vllm") else "it's: text"
    model_names = offers()[work].model if work in CHAINS else "a/b"
    job_file, *modules = create(Answers(tmp_path, "it", "data/true", source, work, model_names, column))
    job = load_job(job_file)
    if work not in CHAINS:
        assert [model.kind for model in job.inference] == ([work] if work != "none" else [])
    columns = {"row_id"} | GIVES.get(source, {column})
    for step in job.steps:
        assert step.column in columns
        columns = columns - {step.column} | MAKES[step.kind]
    for model in job.models:
        read = model.kwargs["column"] if work == "python" else None
        assert {read} if read else set(model.inputs() or ()) <= columns
        if modules:
            monkeypatch.chdir(tmp_path)
            monkeypatch.setattr(sys, "path", list(sys.path))
            monkeypatch.delitem(sys.modules, "my_models", raising=False)
            (out,) = model.load()(batch_of(read)).values()
            assert out.tolist() == ([7.0] * 3 if read in ("image", "audio") else [1, 2, 3])


def test_what_is_offered_is_what_can_be_done_with_such_rows() -> None:
    offered = {source: [work for kind, work in OFFERED if kind == source] for source in source_kinds()}
    arrays_alone = [source for source, works in offered.items() if works == [*MODELS_IN_FILES, "python", "none"]]
    assert arrays_alone == [*OF_OWN_MODELS_ALONE]
    assert offered["audio"] == ["transcription", *MODELS_IN_FILES, "python", "none"]
    assert {"object_detection", "image_captioning", "transcription"} < set(offered["video"])
    assert "chat" in offered["pdf"]
    assert "chat" in offered["csv"]
    assert {work for _, work in OFFERED} == {*offers(), "python", "none"}


def test_every_kind_of_model_is_offered_and_begins_as_a_job_that_ships(tmp_path: Path) -> None:
    kinds = {leaf.model_fields["kind"].default for leaf in get_args(get_args(AnyPredictor)[0])}
    assert kinds <= {work for _, work in OFFERED}
    for kind in kinds - {"python"}:
        source = next(source for source, work in OFFERED if work == kind)
        [job_file] = create(Answers(tmp_path, kind, "in", source, kind, "a/b"))
        assert "\n# docs/how-to/" in job_file.read_text()
        for words in ("${OVERNIGHT_DEMO}", "real weights", "MiniLM", "LLaVA", "the same", "one model each"):
            assert words not in job_file.read_text()


def test_a_job_has_the_settings_of_the_one_that_ships_and_its_texts_are_those_of_the_user(tmp_path: Path) -> None:
    [job_file] = create(Answers(tmp_path, "it", "in", "csv", "openai", "a-model", "says"))
    [model] = load_job(job_file).inference
    assert (model.model, model.user, model.api_key_env) == ("a-model", "{says}", "OPENAI_API_KEY")
    assert model.output_schema


def test_a_model_of_a_table_reads_the_columns_with_numbers_unless_you_name_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("says,height,width\ngood,1,2.5\n")
    inputs = look(str(tmp_path / "a.csv"))
    for name, column, columns in (("all", "", ["height", "width"]), ("one", "width", ["width"])):
        [job_file] = create(Answers(tmp_path, name, "a.csv", "csv", "sklearn", "m.joblib", column, inputs))
        [model] = load_job(job_file).inference
        assert (model.file, model.columns) == (os.path.abspath("m.joblib"), columns)


@pytest.mark.parametrize(("work", "model"), [("torch", "m.pt2"), ("sklearn", "m.joblib"), ("openai", "a-model")])
def test_what_holds_for_the_model_that_ships_is_not_in_a_job_with_another_one(
    tmp_path: Path, work: str, model: str
) -> None:
    [job_file] = create(Answers(tmp_path, "it", "in", "csv", work, model, "says"))
    [entry] = load_job(job_file).inference
    of_one_model = {"outputs", "probabilities", "price_per_million_input_tokens", "price_per_million_output_tokens"}
    assert not entry.model_fields_set & of_one_model


def test_a_job_with_the_usual_model_of_an_endpoint_has_its_prices(tmp_path: Path) -> None:
    [job_file] = create(Answers(tmp_path, "it", "in", "csv", "openai", offers()["openai"].model, "says"))
    [entry] = load_job(job_file).inference
    assert entry.price_per_million_input_tokens


def test_a_second_model_of_your_own_in_a_folder_has_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "my_models.py").write_text("precious")
    answers = Answers(tmp_path, "of-mine", "data", "csv", "python")
    assert [file.name for file in create(answers)] == ["of-mine.yaml", "my_models_of_mine.py"]
    assert "my_models_of_mine:Model" in (tmp_path / "of-mine.yaml").read_text()
    assert (tmp_path / "my_models.py").read_text() == "precious"


@pytest.mark.parametrize(
    ("name", "answers", "told"),
    [
        ("mine", ("csv", "python"), r"mine\.yaml: exists already"),
        ("other", ("pdf", "text_embedding", "a/b", "pdf"), "--text-column pdf: for pdf the work reads the column text"),
        ("other", ("images", "object_classification", "a/b"), "--model a/b: expected 2 names with commas"),
        ("Not A Name", ("csv", "none"), "name: expected text like"),
    ],
)
def test_nothing_is_overwritten_and_what_would_not_be_valid_is_not_written(
    tmp_path: Path, name: str, answers: tuple[str, ...], told: str
) -> None:
    (tmp_path / "mine.yaml").write_text("precious")
    with pytest.raises(JobError, match=told):
        create(Answers(tmp_path, name, "data", *answers))
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"mine.yaml": "precious"}


def test_a_link_at_the_place_of_a_job_file_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    with pytest.raises(JobError, match=r"mine\.yaml: exists already"):
        create(Answers(tmp_path, "mine", "data", "csv", "none"))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"path": "nowhere"}, "expected --source, one of images, "),
        ({"path": "nowhere", "source": "photos"}, "--source photos: expected one of images, "),
        ({"path": "nowhere", "source": "csv"}, "expected --work, one of text_classification, "),
        ({"path": "nowhere", "source": "csv", "work": "image_embedding"}, "--work image_embedding: expected one"),
        ({**CSV, "schedule": "at night"}, r"schedule\.cron: expected five cron fields.*found 'at n"),
        ({**CSV, "schedule": "2:30", "timezone": "Berlin"}, r"schedule\.timezone: expected an IANA name"),
        ({**CSV, "timezone": "Europe/Berlin"}, "--timezone Europe/Berlin: expected --schedule with it"),
        ({**CSV, "schedule": "2:30", "path": "${NOT_SET}"}, "the environment variable NOT_SET is not set"),
        ({**CSV, "text_column": "sais"}, "--text-column sais: expected one of id, says"),
    ],
)
def test_an_answer_that_is_missing_or_would_fail_later_is_named_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # no terminal
    (tmp_path / "a.csv").write_text("id,says\n1,good\n")
    with pytest.raises(JobError, match=told):
        create(prompt_for_answers(tmp_path / "jobs", dict.fromkeys(OPTIONS) | given))
    assert not list(tmp_path.glob("jobs/*"))


def test_a_person_is_asked_for_what_is_not_given(overnight: Overnight, tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text("says\ngood\n")
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "w") as keyboard:
        keyboard.write("reviews.csv\ntext_classification\nsays\n\n")
        keyboard.flush()
        done = overnight("init", "--name", "mood", stdin=theirs)
    os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert deployable(tmp_path / "mood.yaml").name == "mood"
    expected = f"""
        # Run it in this folder: overnight run mood.yaml
        # docs/how-to/text-classification.md: write a label and its confidence for each text.
        name: mood
        source: {{kind: csv, path: {tmp_path}/reviews.csv}}
        inference:
          - {{kind: text_classification, model: {offers()["text_classification"].model}, text_column: says}}
        # Fewer rows, or a greater share of them in quarantine, are not published.
        checks: {{min_rows: 1, max_quarantined: 0.01}}
        sink: {{kind: parquet, path: {tmp_path}/predictions/mood}}
    """
    assert (tmp_path / "mood.yaml").read_text() == textwrap.dedent(expected).lstrip()
    assert all(words in done.stdout for words in task_choices("csv").values())


@pytest.mark.parametrize(("when", "cron"), [("2:30", "30 2 * * *"), ("15 3 * * 1", "15 3 * * 1")])
def test_a_job_with_a_schedule_can_be_deployed_as_it_is(
    tmp_path: Path, pictures: Path, overnight: Overnight, when: str, cron: str
) -> None:
    wanted = ("--schedule", when, "--timezone", "Europe/Berlin")
    done = overnight("init", "--path", "in/date={partition}", "--work", "none", "--name", "nightly", *wanted)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("overnight deploy nightly.yaml\n")
    schedule = deployable(tmp_path / "nightly.yaml").schedule
    assert schedule
    assert (schedule.cron, schedule.timezone, schedule.offset_days) == (cron, "Europe/Berlin", -1)
