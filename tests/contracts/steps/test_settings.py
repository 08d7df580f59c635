"""Settings that no run can mean are refused when the job is read, before any file is."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from overnight.tasks.preprocess.kinds import Step

STEPS: TypeAdapter[Any] = TypeAdapter(Step)
NEAR = {"column": "a", "threshold": 0.9}
REFUSED: list[dict[str, Any]] = [
    {"kind": "select_columns", "columns": []},
    {"kind": "drop_columns", "columns": ["row_id"]},
    *({"kind": "rename_columns", "columns": {"label": name}} for name in ("row_id", "__state", "")),
    {"kind": "rename_columns", "columns": {"uri": "path"}},
    {"kind": "rename_columns", "columns": {"label": "a", "text": "a"}},
    *({"kind": "derive_columns", "columns": {name: "1"}} for name in ("row_id", "uri", "__state", "")),
    {"kind": "filter_rows", "expression": "i +"},
    {"kind": "deduplicate"},
    {"kind": "deduplicate", "columns": []},
    {"kind": "deduplicate", "columns": ["a"], "near": NEAR},
    *({"kind": "deduplicate", "near": NEAR | {"threshold": threshold}} for threshold in (0, 1.1)),
    {"kind": "decode_audio", "overlap_seconds": 1},
    {"kind": "decode_audio", "chunk_seconds": 3, "overlap_seconds": 2},
    {"kind": "sample_frames"},
    {"kind": "sample_frames", "every_seconds": 1, "frames_per_second": 1},
    *({"kind": "resize_image", "size": size} for size in (0, [4, 0])),
    {"kind": "resize_image", "size": 4, "resample": "cubic"},
    {"kind": "resize_image", "size": 4, "decode": "fast", "resample": "box"},
    {"kind": "crop_boxes", "boxes": "rectangles"},
    {"kind": "split_text", "size": 10, "overlap": 6},
    {"kind": "split_text", "tokenizer": "s3://bucket/folder"},
]


@pytest.mark.parametrize("settings", REFUSED, ids=str)
def test_settings_that_no_run_can_mean_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        STEPS.validate_python(settings)
    kinds = {error["type"] for error in caught.value.errors()}
    assert not kinds & {"missing", "extra_forbidden", "union_tag_invalid"}, "the test itself has a wrong key"


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "rename_columns", "columns": {"label": "a", "text": "label"}},
        {"kind": "deduplicate", "near": NEAR | {"threshold": 1}},
        {"kind": "decode_audio", "chunk_seconds": 3, "overlap_seconds": 1.5},
        {"kind": "split_text", "size": 10, "overlap": 5},
        {"kind": "crop_boxes", "boxes": "found_boxes"},
    ],
    ids=str,
)
def test_settings_at_the_limit_are_taken(settings: dict[str, Any]) -> None:
    assert STEPS.validate_python(settings).kind == settings["kind"]
