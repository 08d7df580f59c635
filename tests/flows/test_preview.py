"""A preview in this process: its rows, its failures, what it reads and what it leaves behind."""

import base64
import importlib
import io
import itertools
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from overnight.flows import preview_cells
from overnight.flows.job.model import Job
from overnight.flows.preview import Preview, preview
from overnight.tasks.errors import ContractError, InputError, JobError, OvernightError
from overnight.tasks.ingest.listing.take_manifest import first_units, take_manifest
from overnight.tasks.ingest.sources.text import Text
from overnight.tasks.storage.location import File, Location
from tests import jobs
from tests.conftest import WORKER_PATH
from tests.flows import test_chains
from tests.flows.conftest import write_parquet
from tests.tasks.infer.chat_models import chat_model
from tests.tasks.infer.chat_server import chat_server
from tests.tasks.infer.engine_in_place_of_vllm import interpreter_in, starts_in

CODE = """
import numpy as np


class Bright:
    def __call__(self, batch):
        print("the model prints")
        if (batch["image"] > 150).any():
            raise ValueError("too bright")
        return {"level": np.array([float(image.mean()) for image in batch["image"]])}


def twice(batch):
    return {"twice": batch["level"] * 2, "nothing": [None] * len(batch["level"])}
"""
RESIZE = {"kind": "resize_image", "size": 16}
BRIGHT, TWICE = ({"kind": "python", "target": f"previewed:{name}"} for name in ("Bright", "twice"))


@pytest.fixture(autouse=True)
def code(monkeypatch: pytest.MonkeyPatch) -> None:
    (WORKER_PATH / "previewed.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(WORKER_PATH))
    importlib.invalidate_caches()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """The folder of six photos of one grey each in `in`, from 0 to 200, and of a file that is no image."""
    (tmp_path / "in").mkdir()
    for number in range(6):
        Image.fromarray(np.full((30, 40, 3), number * 40, np.uint8)).save(tmp_path / f"in/{number}.png")
    (tmp_path / "in/2.jpg").write_bytes(b"no image")
    return tmp_path


def job(folder: Path, *inference: dict[str, Any], kind: str = "images", **more: Any) -> Job:
    source = {"kind": kind, "path": f"{folder}/in", **more.pop("source", {})}
    sink = {"kind": "parquet", "path": f"{folder}/out", **more.pop("sink", {})}
    more.setdefault("row_timeout_seconds", None)
    return jobs.load(folder, source=source, inference=list(inference), sink=sink, **more)


def bright(folder: Path, *more: dict[str, Any], **settings: Any) -> Job:
    return job(folder, BRIGHT, *more, **{"preprocess": [RESIZE], **settings})


def test_rows_pass_every_step_and_model_and_the_others_are_told_with_the_line_that_refused_them(photos: Path) -> None:
    found = preview(bright(photos, TWICE, {"kind": "filter_rows", "expression": "level > 0"}))
    assert found.select(["row_id", "level", "twice", "nothing"]).to_pylist() == [
        {"row_id": f"{number}.png", "level": 40.0 * number, "twice": 80.0 * number, "nothing": None}
        for number in (1, 2, 3)
    ]
    reasons = {
        row["row_id"]: (row["stage"], row["error_type"], row["error_message"]) for row in found.quarantine.to_pylist()
    }
    line = CODE.splitlines().index('            raise ValueError("too bright")') + 1
    raised = ("infer", "ValueError", f"too bright (previewed.py:{line}, in __call__)")
    assert reasons.pop("2.jpg")[0] == "preprocess"
    assert reasons == {"4.png": raised, "5.png": raised}
    assert found.filtered == 1
    assert list(found.seconds) == [
        "ingest",
        "preprocess.0 resize_image",
        "inference.0 previewed:Bright: load",
        "inference.0 previewed:Bright",
        "inference.1 previewed:twice",
        "inference.2 filter_rows",
    ]
    assert all(seconds > 0 for seconds in found.seconds.values())


def test_steps_between_models_filter_make_and_lose_rows_as_in_a_run(tmp_path: Path) -> None:
    """tests/flows/test_chains.py runs the same chain, and compares the preview's rows and types with the run's."""
    test_chains.write_numbers(tmp_path)
    found = preview(job(tmp_path, *test_chains.CHAIN, kind="parquet"), test_chains.ROWS)
    assert (found.column_names, test_chains.values(found.table)) == (test_chains.COLUMNS, test_chains.EXPECTED)
    reasons = {row["row_id"]: row["error_message"].partition(" (")[0] for row in found.quarantine.to_pylist()}
    assert reasons == test_chains.REFUSED
    assert found.filtered == test_chains.ROWS - len({row[1] for row in test_chains.EXPECTED}) - len(reasons)


def test_two_prompts_of_the_same_weights_start_their_engine_once(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in/a.parquet", text=["ab", "cd"])
    asks = {"kind": "vllm", "model": str(chat_model(tmp_path / "model")), "python": str(interpreter_in(tmp_path))}
    prompts = {"forth": "{text}", "back": "{forth_generated_text}"}
    models = [asks | {"name": name, "user": user} for name, user in prompts.items()]
    shown = preview(jobs.load(tmp_path, source={"kind": "parquet", "path": f"{tmp_path}/in"}, inference=models))
    assert shown.table["back_generated_text"].to_pylist() == ["ab", "cd"]
    assert len(starts_in(tmp_path)) == 1


def test_the_listing_ends_as_soon_as_there_are_enough_rows(tmp_path: Path) -> None:
    class Endless(Text):
        kind: Literal["endless"] = "endless"  # type: ignore[assignment]

        def files(self, partition: str) -> Iterator[File]:
            return (File(f"{number:09}.txt", f"/{number:09}.txt", 1, "1") for number in itertools.count())

    _, units, _ = first_units(Endless(path=str(tmp_path)), "all", 150)
    assert units["path"].to_pylist() == [f"{number:09}.txt" for number in range(150)]
    assert units["unit"].to_pylist() == list(range(150))


def test_the_types_of_later_files_hold_for_the_first_rows_as_in_a_run(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in/a.parquet", x=pa.array([1, 2, 3], pa.int32()))
    write_parquet(tmp_path / "in/b.parquet", x=[2**40])
    found = preview(job(tmp_path, kind="parquet"), rows=2)
    assert found.schema.field("x").type == pa.int64()
    assert found.to_pylist()[1] == {"row_id": "a.parquet#1", "uri": f"{tmp_path}/in/a.parquet", "x": 2}


def test_columns_that_are_not_published_are_shown_apart(photos: Path) -> None:
    found = preview(bright(photos), rows=2)
    assert found.column_names == ["row_id", "uri", "level"]
    assert found["row_id"].to_pylist() == found.left_out["row_id"].to_pylist() == ["0.png", "1.png"]
    assert preview_cells.pixels(preview_cells.values(found.left_out["image"])[1]).shape == (16, 16, 3)
    assert (len(found), found.num_rows, len(found.quarantine)) == (2, 2, 0)
    assert pa.table(found).equals(found.table)
    assert "left_out" not in repr(found)  # the pictures would fill the screen
    with pytest.raises(AttributeError):
        found.no_such_method  # noqa: B018
    several = ({"kind": "derive_columns", "columns": {"part": "[1, 2]"}}, {"kind": "explode", "columns": ["part"]})
    kept = preview(bright(photos, *several, preprocess=[], sink={"keep_columns": ["image"]}), rows=1)
    assert kept.column_names == ["row_id", "uri", "image", "level", "part"]
    assert not kept.left_out.column_names
    assert list(kept.seconds)[1] == "preprocess decode_image"  # the job file does not name the step


def test_rows_that_the_sink_refuses_are_quarantined_as_in_a_run(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("text\na\nb\n")
    refused = preview(job(tmp_path, kind="csv", sink={"kind": "images", "column": "text"}))
    assert [row["stage"] for row in refused.quarantine.to_pylist()] == ["write", "write"]


def test_inputs_that_are_missing_are_an_error_with_the_sentence_of_a_run(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in/empty.parquet", x=pa.array([], pa.int64()))
    for empty in (job(tmp_path), job(tmp_path, kind="parquet"), job(tmp_path / "nowhere")):
        with pytest.raises(InputError) as by_run:
            take_manifest(Location(str(tmp_path / "manifest")), empty.source, "all")
        with pytest.raises(InputError) as found:
            preview(empty)
        assert str(found.value) == str(by_run.value)


def test_inputs_that_have_not_arrived_are_an_error_immediately(photos: Path) -> None:
    waiting = job(photos, source={"wait_for": {"file": "_SUCCESS"}})
    with pytest.raises(InputError, match=r"the file .*/_SUCCESS, found none"):
        preview(waiting)
    (photos / "in/_SUCCESS").touch()
    assert len(preview(waiting, rows=2)) == 2


def test_errors_name_their_stage(photos: Path) -> None:
    for entry, kind, stage, fact in (
        (BRIGHT | {"target": "previewed:Brihgt"}, JobError, "infer", "expected Brihgt in previewed, found Bright"),
        ({"kind": "onnx", "file": "x", "columns": ["imgae"]}, ContractError, "infer", "did you mean image"),
        ({"kind": "filter_rows", "expression": "nothing > 1"}, OvernightError, "preprocess", "nothing"),
    ):
        with pytest.raises(kind, match=fact) as found:
            preview(job(photos, entry))
        assert found.value.stage == stage
    with pytest.raises(JobError, match="at least 1, found 0"):
        preview(job(photos), rows=0)


def test_nothing_is_left_behind_and_the_process_keeps_its_streams(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(photos / "temporary"))
    streams, files = (sys.stdout, sys.stderr), sorted(os.listdir(photos))
    preview(bright(photos), rows=2)
    assert (sys.stdout, sys.stderr) == streams
    assert capsys.readouterr().out == "the model prints\n"
    assert sorted(os.listdir(photos)) == files
    assert not os.listdir(photos / "temporary")


def test_answers_of_an_endpoint_are_shown_and_none_is_kept(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("hello")
    with chat_server() as server:
        asking = {"kind": "openai", "base_url": server.url, "model": "m", "system": "be kind", "user": "{text}"}
        found = preview(job(tmp_path, asking, kind="text"))
    assert found["generated_text"].to_pylist() == ["be kind|hello"[::-1]]
    assert os.listdir(tmp_path) == ["in"]


def shown(**columns: list[Any]) -> Preview:
    return Preview("<job>", "all", pa.table(columns), pa.table({}), pa.table({"row_id": ["<b>"]}), 0, {"<read>": 1.0})


def test_html_escapes_texts_cuts_them_and_holds_images_as_small_pictures() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (900, 600), "red").save(buffer, "JPEG")
    texts = ["<script>alert(1)</script>", "long " * 1000] * 100
    page = shown(text=texts, image=pa.array([buffer.getvalue()] * 200))._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "<b>" not in page
    assert "and 150 more rows" in page
    assert len(page) < 200_000
    picture = page.split("data:image/png;base64,")[1].split('"')[0]
    assert Image.open(io.BytesIO(base64.b64decode(picture))).size == (192, 128)
    assert 'alt="JPEG 900x600, ' in page


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (1234567, "1234567"),
        (0.123456, "0.1235"),
        ("two\nlines", "two lines"),
        ([0.123, -0.034, *[0.0] * 382], "[0.12, -0.03, … 384]"),
        ([1, 2, 3, 4, 5, 6], "[1, 2, 3, 4, 5, 6]"),
        (["a", *"bcdefg"], "[a, b, c, d, e, f, g]"),
        ({"mood": "good", "why": None}, '{"mood": "good", "why": null}'),
        (b"\0" * 3, "3 bytes"),
        (b"\0" * 45_000, "45 kB"),
        (b"\0" * 2_340_000, "2.3 MB"),
        (np.zeros((2, 3), np.float32), "float32 2 x 3"),
        (np.zeros((20, 30, 3), np.uint8), "image 30x20"),
    ],
)
def test_values_are_texts_of_one_line(value: Any, text: str) -> None:
    assert preview_cells.text_of(value) == text


def test_lists_of_pixels_are_arrays_unless_their_lines_differ() -> None:
    kind = pa.list_(pa.list_(pa.list_(pa.uint8())))
    ragged = [[[1]], [[1], [2]]]
    image, none, other = preview_cells.values(pa.chunked_array([pa.array([[[[1, 2, 3]]], None, ragged], kind)]))
    assert preview_cells.pixels(image).tolist() == [[[1, 2, 3]]]
    assert (none, other) == (None, ragged)
    assert preview_cells.values(pa.chunked_array([[[[1]]]])) == [[[1]]]
