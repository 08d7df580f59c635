"""Search over what a job published: a CLIP with small random weights from a job file, beside plain transformers."""

import json
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from transformers import BertConfig, BertModel, CLIPModel

from overnight.flows.job.model import Job
from overnight.flows.similarity_search import match_markdown, similarity_search, validate_query
from overnight.tasks.errors import JobError, OvernightError
from overnight.tasks.write.tables.lance_index import INDEXED_ROWS
from tests.flows.by_hand import covered, image_features
from tests.flows.conftest import Overnight, RunJob
from tests.tasks.infer.test_query_embedding import SENTENCE, small_clip, text_features
from tests.tasks.infer.words import WORDS, some_texts, word_tokenizer

DAYS = ("2026-01-02", "2026-01-03")


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    """Twenty pictures of noise in two partitions, and the job that embeds them with a small CLIP."""
    small_clip(tmp_path / "clip")
    noise = np.random.default_rng(0).integers(0, 256, (20, 6, 8, 3), dtype=np.uint8)
    for place, pixels in enumerate(noise):
        file = tmp_path / f"in/date={DAYS[place % 2]}" / ("dog" if place % 3 else "cat") / f"{place:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).resize((80, 60)).save(file)
    return {
        "name": "looks",
        "source": {"kind": "images", "path": f"{tmp_path}/in/date={{partition}}", "label_from": "parent"},
        "preprocess": [{"kind": "resize_image", "size": 48}],
        "inference": [{"kind": "image_embedding", "model": str(tmp_path / "clip")}],
        "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": 3},
    }


def written(job: dict[str, Any], folder: Path) -> str:
    (folder / "looks.yaml").write_text(yaml.safe_dump(job))
    return str(folder / "looks.yaml")


def by_hand(folder: Path, files: list[Path]) -> np.ndarray:
    """CLIP's image features of files: 48 pixels first, as the job says."""
    return np.stack([image_features(folder, covered(file, 48)) for file in files])


def order(vectors: np.ndarray, query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scores = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    best = np.argsort(-scores)
    return best, scores[best]


@pytest.mark.slow
def test_images_and_texts_find_the_rows_that_plain_transformers_find(
    run_job: RunJob, overnight: Overnight, job: dict[str, Any], tmp_path: Path
) -> None:
    path = written(job, tmp_path)
    with pytest.raises(OvernightError, match=r"expected a partition of looks with embeddings, found no published"):
        similarity_search(path, text=SENTENCE)
    for day in DAYS:
        run_job(job, day)
    files = sorted((tmp_path / "in").rglob("*.png"))
    vectors = by_hand(tmp_path / "clip", files)
    names = [str(file.relative_to(tmp_path / "in")).split("/", 1)[1] for file in files]

    best, scores = order(vectors, vectors[4])
    found = similarity_search(path, image=str(files[4]), count=20)
    assert [match["row_id"] for match in found["matches"]] == [names[place] for place in best]
    np.testing.assert_allclose([match["score"] for match in found["matches"]], scores, atol=1e-5)
    assert {(match["label"], match["row_id"].split("/")[0]) for match in found["matches"]} == {
        ("cat",) * 2,
        ("dog",) * 2,
    }
    assert (found["rows"], found["partitions"]) == (20, list(DAYS))

    query = text_features(tmp_path / "clip", SENTENCE)
    best, scores = order(vectors, query)
    done = overnight("search", "looks.yaml", "--text", SENTENCE, "-n", "3", "--json", "--sheet", "sheet.png")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [match["row_id"] for match in told["matches"]] == [names[place] for place in best[:3]]
    np.testing.assert_allclose([match["score"] for match in told["matches"]], scores[:3], atol=1e-5)
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    for match in told["matches"]:  # a pixel of each picture is in the sheet
        pixel = np.asarray(Image.open(match["uri"]))[30, 40]
        assert (sheet == pixel).all(2).any()

    one = similarity_search(path, text=SENTENCE, partition=DAYS[1])
    assert {match["partition"] for match in one["matches"]} == {DAYS[1]}

    network = CLIPModel.from_pretrained(tmp_path / "clip")
    torch.nn.init.normal_(network.visual_projection.weight)
    network.save_pretrained(tmp_path / "clip")
    with pytest.raises(OvernightError, match=r"2026-01-02: another model than .* made its.*Run the job"):
        similarity_search(path, text=SENTENCE)


@pytest.mark.slow
def test_a_lance_table_is_searched_row_by_row_and_by_its_index(
    run_job: RunJob, job: dict[str, Any], tmp_path: Path
) -> None:
    job["sink"] = {"kind": "lance", "path": str(tmp_path / "out")}
    path = written(job, tmp_path)
    for day in DAYS:
        run_job(job, day)
    files = sorted((tmp_path / "in").rglob("*.png"))
    vectors = by_hand(tmp_path / "clip", files)
    best, scores = order(vectors, vectors[4])
    names = [str(file.relative_to(tmp_path / "in")).split("/", 1)[1] for file in files]
    for is_indexed in (False, True):
        if is_indexed:
            table = lance.dataset(str(tmp_path / "out"))
            table.create_index("embedding", "IVF_FLAT", metric="cosine", num_partitions=2)
        found = similarity_search(path, image=str(files[4]), count=20)
        assert (found["exact"], found["rows"], found["partitions"]) == (not is_indexed, 20, list(DAYS))
        assert [match["row_id"] for match in found["matches"]] == [names[place] for place in best]
        assert {match["partition"]: match["uri"].split("date=")[1][:10] for match in found["matches"]} == {
            day: day for day in DAYS
        }
        np.testing.assert_allclose([match["score"] for match in found["matches"]], scores, atol=1e-5)
    one = similarity_search(path, text=SENTENCE, partition=DAYS[1])
    assert ({match["partition"] for match in one["matches"]}, one["rows"], one["exact"]) == ({DAYS[1]}, 10, False)
    assert similarity_search(path, text=SENTENCE, exact=True)["exact"]


@pytest.mark.slow
def test_a_job_makes_the_index_that_searches_of_many_rows_use(run_job: RunJob, tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 37}
    BertModel(BertConfig(vocab_size=len(WORDS) + 4, initializer_range=0.5, **sizes)).save_pretrained(tmp_path / "bert")
    word_tokenizer(cls_token="[CLS]", sep_token="[SEP]", model_max_length=64).save_pretrained(tmp_path / "bert")
    texts = some_texts(INDEXED_ROWS + 200, 12)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    job = {
        "name": "looks",
        "source": {"kind": "jsonl", "path": str(tmp_path / "in")},
        "inference": [{"kind": "text_embedding", "model": str(tmp_path / "bert"), "text_column": "text"}],
        "sink": {"kind": "lance", "path": str(tmp_path / "out"), "index": "embedding"},
    }
    run_job(job)
    path = str(tmp_path / "looks.yaml")
    exactly, found = (similarity_search(path, text=texts[9], count=10, exact=exact) for exact in (True, False))
    assert (exactly["exact"], found["exact"]) == (True, False)
    assert found["rows"] == exactly["rows"] == len(texts)
    assert found["matches"][0]["text"] == texts[9]
    same = {match["row_id"] for match in found["matches"]} & {match["row_id"] for match in exactly["matches"]}
    assert len(same) >= 9


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({}, "expected an image or a text to search with, found neither"),
        ({"image": "a.png", "text": "a dog"}, "found both"),
        ({"text": "a dog", "model": "other"}, "model other: expected one of image_embedding"),
        ({"text": "a dog", "partition": "yesterday"}, "expected a day as YYYY-MM-DD, found yesterday"),
    ],
)
def test_a_question_that_cannot_be_answered_says_what_is_wrong(
    prefect_api: str, job: dict[str, Any], tmp_path: Path, question: dict[str, str], expected: str
) -> None:
    with pytest.raises(JobError, match=expected):
        similarity_search(written(job, tmp_path), **question)


CLIP = {"kind": "image_embedding", "model": "m"}
TO_VECTOR = {"kind": "rename_columns", "columns": {"embedding": "vector"}}
DROPPED = r"expected published embeddings in a column 'vector', found that {} removes it. Let this step keep it"


@pytest.mark.parametrize(
    ("inference", "column"),
    [
        ([CLIP], "embedding"),
        ([CLIP, TO_VECTOR, {"kind": "rename_columns", "columns": {"vector": "v", "label": "vector"}}], "v"),
        ([CLIP, {"kind": "select_columns", "columns": ["embedding"]}, TO_VECTOR], "vector"),
        (
            [
                {**CLIP, "name": "clip"}, {"kind": "rename_columns", "columns": {"clip_embedding": "sees_embedding"}},
                {"kind": "image_classification", "model": "m", "name": "sees"},
            ],
            "sees_embedding",
        ),
    ],
)  # fmt: skip
def test_a_search_uses_the_column_that_the_embeddings_were_renamed_to(
    job: dict[str, Any], inference: list[dict[str, Any]], column: str
) -> None:
    loaded = Job.model_validate({**job, "inference": inference})
    assert validate_query(loaded, None, "a dog", None, None) == (loaded.models[0], column)


@pytest.mark.parametrize(
    "step", [{"kind": "drop_columns", "columns": ["vector"]}, {"kind": "select_columns", "columns": ["label"]}]
)
def test_a_search_of_embeddings_that_are_not_published_names_the_step(job: dict[str, Any], step: dict) -> None:
    loaded = Job.model_validate({**job, "inference": [CLIP, TO_VECTOR, step]})
    with pytest.raises(JobError, match=DROPPED.format(step["kind"])):
        validate_query(loaded, None, "a dog", None, None)


def test_bad_usage_of_search_exits_with_2(overnight: Overnight, job: dict[str, Any], tmp_path: Path) -> None:
    job["inference"] = []
    written(job, tmp_path)
    done = overnight("search", "looks.yaml", "--text", "a dog")
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected a job with image_embedding or text_embedding, found no model" in done.stderr


def test_an_image_that_cannot_be_read_is_named(prefect_api: str, job: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "no.png").write_text("a text")
    path = written(job, tmp_path)
    with pytest.raises(JobError, match=r"image .*no\.png: expected an image"):
        similarity_search(path, image=str(tmp_path / "no.png"))
    with pytest.raises(JobError, match=r"image .*gone\.png: cannot be read"):
        similarity_search(path, image=str(tmp_path / "gone.png"))


def test_a_search_that_failed_ends_in_one_sentence(prefect_api: str, job: dict[str, Any], tmp_path: Path) -> None:
    state = similarity_search(written(job, tmp_path), text="a dog", return_state=True)
    assert state.is_failed()
    assert state.message == (
        "failed in plan: expected a partition of looks with embeddings, found no published partition. "
        "Run the job first."
    )


def test_a_match_is_shown_without_a_table() -> None:
    shown = match_markdown({"row_id": "a|b.csv#1", "score": 0.61051, "partition": "all", "text": "<b>\nx", "n": None})
    assert shown == "**0.6105** a&#124;b.csv#1\n\n- partition: all\n- text: &lt;b&gt; x"
