"""Search over what a job published: a CLIP with small random weights from a job file, beside plain transformers."""

import json
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CLIPModel

from overnight.flows.job.model import Job
from overnight.flows.similarity_search import match_markdown, similarity_search, validate_query
from overnight.tasks.errors import JobError, OvernightError
from tests import jobs
from tests.flows.by_hand import covered, image_features
from tests.flows.conftest import Overnight, RunJob
from tests.tasks.infer.test_query_embedding import SENTENCE, small_clip, text_features

DAYS = ("2026-01-02", "2026-01-03")
CLIP = {"kind": "image_embedding", "model": "m"}
TEXTS = {"kind": "text_embedding", "model": "m", "text_column": "label"}
TO_VECTOR = {"kind": "rename_columns", "columns": {"embedding": "vector"}}


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    """Twenty pictures of noise in two partitions, and the job that embeds them with a small CLIP."""
    small_clip(tmp_path / "clip")
    noise = np.random.default_rng(0).integers(0, 256, (20, 6, 8, 3), dtype=np.uint8)
    for place, pixels in enumerate(noise):
        file = tmp_path / f"in/date={DAYS[place % 2]}" / ("dog" if place % 3 else "cat") / f"{place:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).resize((80, 60)).save(file)
    return jobs.job(
        tmp_path,
        source={"kind": "images", "path": f"{tmp_path}/in/date={{partition}}", "label_from": "parent"},
        preprocess=[{"kind": "resize_image", "size": 48}],
        inference=[{"kind": "image_embedding", "model": str(tmp_path / "clip")}],
        sink={"kind": "parquet", "path": f"{tmp_path}/out", "rows_per_part": 3},
    )


def by_hand(folder: Path) -> tuple[list[Path], list[str], np.ndarray]:
    """The pictures, their names, and CLIP's features of each: 48 pixels first, as the job says."""
    files = sorted((folder / "in").rglob("*.png"))
    names = [str(file.relative_to(folder / "in")).split("/", 1)[1] for file in files]
    return files, names, np.stack([image_features(folder / "clip", covered(file, 48)) for file in files])


def assert_best(matches: list[dict[str, Any]], names: list[str], vectors: np.ndarray, query: np.ndarray) -> None:
    scores = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    best = np.argsort(-scores)[: len(matches)]
    assert [match["row_id"] for match in matches] == [names[place] for place in best]
    np.testing.assert_allclose([match["score"] for match in matches], scores[best], atol=1e-5)


@pytest.mark.slow
def test_images_and_texts_find_the_rows_that_plain_transformers_find(
    run_job: RunJob, overnight: Overnight, job: dict[str, Any], tmp_path: Path
) -> None:
    path = str(jobs.write_job(tmp_path / "looks.yaml", job))
    for day in DAYS:
        run_job(tmp_path / "looks.yaml", day)
    files, names, vectors = by_hand(tmp_path)
    found = similarity_search(path, image=str(files[4]), count=20)
    assert len(found["matches"]) == 20
    assert_best(found["matches"], names, vectors, vectors[4])
    assert all(match["label"] == match["row_id"].split("/")[0] for match in found["matches"])
    assert (found["rows"], found["partitions"]) == (20, list(DAYS))

    done = overnight("search", "looks.yaml", "--text", SENTENCE, "-n", "3", "--json", "--sheet", "sheet.png")
    assert done.returncode == 0, done.stderr
    matches = json.loads(done.stdout)["matches"]
    assert len(matches) == 3
    assert_best(matches, names, vectors, text_features(tmp_path / "clip", SENTENCE))
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    for match in matches:  # a pixel of each picture is in the sheet
        pixel = np.asarray(Image.open(match["uri"]))[30, 40]
        assert (sheet == pixel).all(2).any()

    one = similarity_search(path, text=SENTENCE, partition=DAYS[1])
    assert {match["partition"] for match in one["matches"]} == {DAYS[1]}

    network = CLIPModel.from_pretrained(tmp_path / "clip")
    torch.nn.init.normal_(network.visual_projection.weight)
    network.save_pretrained(tmp_path / "clip")
    with pytest.raises(OvernightError, match="2026-01-02: another model than"):
        similarity_search(path, text=SENTENCE)


@pytest.mark.slow
def test_a_lance_table_is_searched_row_by_row_and_by_its_index(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path
) -> None:
    job["sink"] = {"kind": "lance", "path": f"{tmp_path}/out"}
    path = str(jobs.write_job(tmp_path / "looks.yaml", job))
    for day in DAYS:
        run_job(tmp_path / "looks.yaml", day)
    files, names, vectors = by_hand(tmp_path)
    for is_indexed in (False, True):
        if is_indexed:
            table = lance.dataset(f"{tmp_path}/out")
            table.create_index("embedding", "IVF_FLAT", metric="cosine", num_partitions=2)
        found = similarity_search(path, image=str(files[4]), count=20)
        assert (found["exact"], found["rows"], found["partitions"]) == (not is_indexed, 20, list(DAYS))
        assert_best(found["matches"], names, vectors, vectors[4])
        assert all(f"/date={match['partition']}/" in match["uri"] for match in found["matches"])
    one = similarity_search(path, text=SENTENCE, partition=DAYS[1])
    assert ({match["partition"] for match in one["matches"]}, one["rows"], one["exact"]) == ({DAYS[1]}, 10, False)
    assert similarity_search(path, text=SENTENCE, exact=True)["exact"]


@pytest.mark.parametrize(
    ("inference", "question", "fact"),
    [
        ([CLIP], {"text": None}, "found neither"),
        ([CLIP], {"image": "a.png"}, "found both"),
        ([CLIP], {"count": 0}, "from 1 to 999,999, found 0"),
        ([CLIP], {"count": 1_000_000}, "from 1 to 999,999, found 1,000,000"),
        ([CLIP], {"model": "other"}, "model other: expected one of image_embedding"),
        ([], {}, "found no model"),
        ([TEXTS], {"text": None, "image": "a.png"}, "image: the model m embeds texts"),
        ([TEXTS], {"sheet": "a.png"}, "sheet: the model m embeds texts"),
        ([CLIP, TO_VECTOR, {"kind": "drop_columns", "columns": ["vector"]}], {}, "'vector', found that drop_columns"),
        ([CLIP, TO_VECTOR, {"kind": "select_columns", "columns": ["label"]}], {}, "'vector', found that select_colu"),
    ],
)
def test_a_question_that_cannot_be_answered_says_what_is_wrong(
    tmp_path: Path, inference: list[dict[str, Any]], question: dict[str, Any], fact: str
) -> None:
    asked = {"image": None, "text": "a dog", "model": None, "sheet": None} | question
    with pytest.raises(JobError, match=fact):
        validate_query(looking(tmp_path, inference), **asked)


def looking(folder: Path, inference: list[dict[str, Any]]) -> Job:
    source = {"kind": "images", "path": f"{folder}/in", "label_from": "parent"}
    return jobs.load(folder, source=source, inference=inference)


def test_a_search_uses_the_column_that_the_embeddings_were_renamed_to(tmp_path: Path) -> None:
    swapped = {"kind": "rename_columns", "columns": {"vector": "v", "label": "vector"}}
    prefixed = {"kind": "rename_columns", "columns": {"clip_embedding": "sees_embedding"}}
    sees = {"kind": "image_classification", "model": "m", "name": "sees"}
    for inference, column in (
        ([CLIP], "embedding"),
        ([CLIP, TO_VECTOR, swapped], "v"),
        ([CLIP, {"kind": "select_columns", "columns": ["embedding"]}, TO_VECTOR], "vector"),
        ([{**CLIP, "name": "clip"}, prefixed, sees], "sees_embedding"),
    ):
        job = looking(tmp_path, inference)
        assert validate_query(job, None, "a dog", None, None) == (job.models[0], column)


def test_an_image_that_cannot_be_read_is_named_and_a_search_that_failed_ends_in_one_sentence(
    prefect_api: str, job: dict[str, Any], tmp_path: Path
) -> None:
    path = str(jobs.write_job(tmp_path / "looks.yaml", job))
    (tmp_path / "no.png").write_text("a text")
    for name, fact in (("no.png", "expected an image"), ("gone.png", "cannot be read")):
        with pytest.raises(JobError, match=f"image .*{name}: {fact}"):
            similarity_search(path, image=str(tmp_path / name))
    with pytest.raises(JobError, match="yesterday"):
        similarity_search(path, text="a dog", partition="yesterday")
    state = similarity_search(path, text="a dog", return_state=True)
    assert state.is_failed()
    assert state.message == (
        "failed in plan: expected a partition of small with embeddings, found no published partition. "
        "Run the job first."
    )


def test_a_match_is_shown_without_a_table() -> None:
    shown = match_markdown({"row_id": "a|b.csv#1", "score": 0.61051, "partition": "all", "text": "<b>\nx", "n": None})
    assert shown == "**0.6105** a&#124;b.csv#1\n\n- partition: all\n- text: &lt;b&gt; x"
