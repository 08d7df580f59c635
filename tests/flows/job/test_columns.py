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


def test_a_column_that_files_do_not_have_is_named_with_what_there_is_and_what_is_near(problems) -> None:
    assert problems(FILES, SEES, step("filter_rows", expression="confidense > 0.5")) == [
        "inference.1 (filter_rows): expected a column 'confidense', found row_id, uri, image, label, predicted_label, "
        "confidence (did you mean confidence?)"
    ]
    chat = {**CHATS, "name": "looks", "user": "What is {image_label}?"}
    assert problems(FILES, {**SEES, "name": "sees"}, chat) == [
        "inference.1 (openai, looks): expected a column 'image_label', found row_id, uri, image, label, "
        "sees_predicted_label, sees_confidence (did you mean label?)"
    ]
    found = {**step("object_detection", model="m"), "name": "found"}
    assert problems(FILES, found, step("crop_boxes", boxes="found_boxes"))[0].endswith(
        ": a job with one model has no prefixes, it is boxes"
    )
    assert problems({"kind": "pdf", "path": "/data"}, preprocess=[step("split_text")])[0].startswith(
        "preprocess.0 (split_text): expected a column 'text', found row_id, uri, pdf"
    )


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


@pytest.mark.parametrize(
    ("chain", "line"),
    [
        (
            [step("drop_columns", columns=["x"]), {**CHATS, "user": "{x}"}],
            "inference.1 (openai): expected a column 'x', found row_id, uri, and others that only a run shows: "
            "inference.0 (drop_columns) removes it",
        ),
        (
            [step("rename_columns", columns={"x": "y"}), step("filter_rows", expression="x > 1")],
            "inference.1 (filter_rows): expected a column 'x', found row_id, uri, y, and others that only a run shows: "
            "inference.0 (rename_columns) removes it",
        ),
        (
            [step("select_columns", columns=["title"]), {**CHATS, "user": "{titel}"}],
            "inference.1 (openai): expected a column 'titel', found row_id, uri, title (did you mean title?)",
        ),
        (
            [{**SEES, "name": "looks"}, {**CHATS, "name": "chat", "user": "{looks_predicted_lable}"}],
            "inference.1 (openai, chat): expected a column 'looks_predicted_lable', found row_id, uri, "
            "looks_predicted_label, looks_confidence, and others that only a run shows: the model looks makes "
            "looks_predicted_label",
        ),
        (
            [{**OWN, "name": "own"}, step("select_columns", columns=["own_a"]), {**OWN, "name": "b", "where": "own_b"}],
            "inference.2 (python, b): expected a column 'own_b', found row_id, uri, own_a (did you mean own_a?)",
        ),
    ],
)
def test_of_a_table_only_what_is_certainly_wrong_is_refused(problems, chain: list[Any], line: str) -> None:
    assert problems(TABLE, *chain) == [line]


def test_the_columns_of_checks_and_of_the_sink_are_followed_too(problems) -> None:
    found = problems(FILES, SEES, checks={"max_null": {"labels": 0}}, keep=("picture",))
    assert found == [
        "checks.max_null.labels: expected a column 'labels', found row_id, uri, image, label, predicted_label, "
        "confidence (did you mean label?)",
        "sink.keep_columns: expected a column 'picture', found row_id, uri, image, label, predicted_label, confidence",
    ]


@pytest.mark.parametrize("place", range(3))
def test_a_misspelt_column_of_deduplicate_is_named_wherever_the_step_is(problems, place: int) -> None:
    chain = [step("filter_rows", expression="label > 'a'"), {**SEES, "num_gpus": 0}]
    chain.insert(place, step("deduplicate", columns=["labl"]))
    assert [line.partition(", found")[0] for line in problems(FILES, *chain)] == [
        f"inference.{place} (deduplicate): expected a column 'labl'"
    ]


@pytest.mark.parametrize(
    ("source", "before", "columns"),
    [
        (FILES, [], {"label": "image"}),
        (FILES, [SEES], {"label": "confidence"}),
        (TABLE, [step("derive_columns", columns={"b": "1"})], {"a": "b"}),
    ],
)
def test_a_column_is_not_renamed_to_a_name_that_another_has(problems, source: Any, before: list, columns: Any) -> None:
    [taken] = columns.values()
    assert problems(source, *before, step("rename_columns", columns=columns)) == [
        f"inference.{len(before)} (rename_columns): expected a name that no column has, found {taken!r}, which is a "
        "column. Choose another name, or drop that column first"
    ]


def test_names_of_renamed_and_dropped_columns_are_free(problems) -> None:
    swapped = step("rename_columns", columns={"label": "image", "image": "label"})
    assert (
        problems(
            FILES, swapped, step("drop_columns", columns=["image"]), step("rename_columns", columns={"label": "image"})
        )
        == []
    )


@pytest.mark.parametrize(
    ("leaf", "line"),
    [
        (step("rename_columns", columns={}), "columns: expected a mapping that is not empty, found an empty mapping"),
        (
            step("rename_columns", columns={"a": "c", "b": "c"}),
            "columns: two columns are renamed to c. Choose another name for one of them.",
        ),
        (step("select_columns", columns=[]), "columns: expected a list that is not empty, found []"),
        (step("drop_columns", columns=[]), "columns: expected a list that is not empty, found []"),
        (step("explode", columns=[]), "columns: expected a list that is not empty, found []"),
        (step("deduplicate", columns=[]), "columns: expected a list that is not empty, found []"),
    ],
)  # fmt: skip
def test_a_step_that_names_no_column_or_one_twice_is_refused_in_plain_words(problems, leaf: dict, line: str) -> None:
    assert problems(TABLE, preprocess=[leaf]) == [f"preprocess.0.{line}"]


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
    ]  # fmt: skip
    kinds = job_schema()["properties"]["preprocess"]["items"]["discriminator"]["mapping"]
    assert {*kinds} - {"python"} <= {leaf["kind"] for leaf in leaves}  # only a run shows the columns of user code
    for leaf in leaves:
        lines = problems(FILES, leaf)
        assert any("expected a column 'no'" in line for line in lines), leaf
