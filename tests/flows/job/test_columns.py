"""Columns that cannot exist are named before anything is read, by the job file alone."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from overnight.flows.job.loading import job_schema, load_job
from overnight.tasks.errors import JobError

FILES = {"kind": "images", "path": "/data", "label_from": "parent"}
TABLE = {"kind": "parquet", "path": "/data"}
SEES = {"kind": "image_classification", "model": "m"}
CHATS = {"kind": "openai", "model": "m"}
OWN = {"kind": "python", "target": "my_models:Model"}


def step(kind: str, **settings: Any) -> dict[str, Any]:
    return {"kind": kind, **settings}


@pytest.fixture
def problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is said of a job with this source and this chain; an empty list if it is valid."""
    (tmp_path / "my_steps.py").write_text("def changes(batch):\n    return batch\n")
    monkeypatch.chdir(tmp_path)

    def found(source: dict[str, Any], *chain: dict[str, Any], keep: tuple[str, ...] = (), **more: Any) -> list[str]:
        sink = {"kind": "parquet", "path": "/out", "keep_columns": list(keep)}
        job = {"name": "j", "source": source, "inference": list(chain), "sink": sink, **more}
        (tmp_path / "j.yaml").write_text(yaml.safe_dump(job))
        try:
            load_job(tmp_path / "j.yaml")
        except JobError as error:
            lines = str(error).removeprefix(f"{tmp_path}/j.yaml: ").split("\n  ")
            return lines[1:] if len(lines) > 1 else lines
        return []

    return found


@pytest.mark.parametrize(
    ("source", "chain"),
    [
        (FILES, [SEES, step("filter_rows", expression="CONFIDENCE > 0.5 and Label = predicted_LABEL")]),
        (FILES, [{**SEES, "top_k": 3, "where": "label = 'cat'"}, step("explode", columns=["top_labels"])]),
        (FILES, [step("derive_columns", columns={"a": "lower(label)", "b": "A || 'x'"}), {**CHATS, "user": "{b}"}]),
        (FILES, [step("filter_rows", expression="len(list_filter([1, 2], lambda x: x > 1)) = 1")]),
        (FILES, [{**OWN, "name": "own"}, {**CHATS, "name": "chat", "user": "{own_anything} {label}"}]),
        (FILES, [step("derive_columns", columns={"A": "label"}), step("filter_rows", expression="a = 'x'")]),
        (FILES, [{**OWN, "name": "Own"}, {**OWN, "name": "b", "where": "own_anything > 1"}]),
        (FILES, [step("python", target="my_steps:changes"), {**CHATS, "user": "{anything}"}]),
        (FILES, [
            {**step("object_detection", model="m"), "name": "found"}, step("crop_boxes", boxes="found_boxes"),
            {**SEES, "name": "sees", "where": "found_label = 'cat' and found_score > 0.5"},
        ]),
        ({"kind": "pdf", "path": "/d"}, [step("pdf_text"), step("split_text"), {**CHATS, "user": "{text} {page}"}]),
        ({"kind": "audio", "path": "/d"}, [step("decode_audio", chunk_seconds=30), step("transcription", model="m")]),
        ({"kind": "video", "path": "/d"}, [step("sample_frames", every_seconds=1), SEES]),
        ({"kind": "uris", "path": "/d", "content": "text", "keep": ["id"]}, [{**CHATS, "user": "{id} {text}"}]),
        ({"kind": "csv", "path": "/d", "column_names": ["uri", "b"]}, [{**CHATS, "user": "{source_uri} {b}"}]),
        (TABLE, [{**CHATS, "user": "{anything}"}, step("select_columns", columns=["generated_text", "other"])]),
        (TABLE, [{**SEES, "name": "topic"}, {**CHATS, "name": "chat", "user": "{topic_id} {topic_confidence}"}]),
        (TABLE, [step("drop_columns", columns=["x"]), step("python", target="my_steps:changes"),
                 {**CHATS, "user": "{x}"}]),
        (TABLE, [step("rename_columns", columns={"x": "y"}), step("derive_columns", columns={"x": "y"}),
                 {**CHATS, "user": "{x}"}]),
        (FILES, [{**step("onnx", file="m.onnx", columns=["image"]), "name": "o"},
                 {**CHATS, "name": "c", "user": "{o_any}"}]),
    ],
)  # fmt: skip
def test_a_chain_whose_columns_may_exist_is_valid(problems, source: dict[str, Any], chain: list[Any]) -> None:
    assert problems(source, *chain) == []


def test_names_of_renamed_and_dropped_columns_are_free(problems) -> None:
    swapped = step("rename_columns", columns={"label": "image", "image": "label"})
    assert (
        problems(
            FILES, swapped, step("drop_columns", columns=["image"]), step("rename_columns", columns={"label": "image"})
        )
        == []
    )


def test_every_setting_that_names_a_column_is_part_of_its_leaf_s_effect(problems) -> None:
    """A chain that reads only what is not there has a problem for each of its names."""
    leaves = [
        step("decode_image", column="no"), step("resize_image", column="no", size=8), step("decode_audio", column="no"),
        step("sample_frames", column="no", every_seconds=1), step("pdf_text", column="no"),
        step("pdf_text", column="image", password_column="no"), step("split_text", column="no"),
        step("filter_rows", expression="no > 1"), step("derive_columns", columns={"a": "no"}),
        step("select_columns", columns=["no"]), step("drop_columns", columns=["no"]),
        step("rename_columns", columns={"no": "yes"}), step("explode", columns=["no"]),
        step("crop_boxes", image="no", boxes="image_boxes"), {**OWN, "where": "no"}, {**CHATS, "user": "{no}"},
        step("text_embedding", model="m", text_column="no"), step("onnx", file="m.onnx", columns=["no"]),
        step("sklearn", file="m.pkl", columns=["no"]), step("torch", program="m.pt2", columns=["no"]),
        step("deduplicate", columns=["label", "no"]), step("deduplicate", near={"column": "no", "threshold": 0.9}),
        step("python", target="my_steps:changes", columns=["no"]), {**OWN, "columns": ["label", "no"]},
    ]  # fmt: skip
    kinds = job_schema()["properties"]["preprocess"]["items"]["discriminator"]["mapping"]
    assert {*kinds} <= {leaf["kind"] for leaf in leaves}
    for leaf in leaves:
        lines = problems(FILES, leaf)
        assert any("expected a column 'no'" in line for line in lines), leaf
