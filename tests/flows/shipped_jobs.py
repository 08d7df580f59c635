"""The job files that ship: which are run where, and whether each published row is what plain libraries make of it."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import yaml

from tests.flows import by_hand
from tests.flows.conftest import published, quarantine

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "deployments/jobs"
COMPARED = {
    "article-summaries.yaml": by_hand.article_summaries,
    "captions.yaml": by_hand.captions,
    "digits-on-s3.yaml": by_hand.digits,
    "digits.yaml": by_hand.digits,
    "documents.yaml": by_hand.documents,
    "doggos.yaml": by_hand.photo_embeddings,
    "entities.yaml": by_hand.entities,
    "flowers.yaml": by_hand.flowers,
    "orders.yaml": by_hand.orders,
    "photo-embeddings.yaml": by_hand.photo_embeddings,
    "photo-facts.yaml": by_hand.photo_facts,
    "posts.yaml": by_hand.posts,
    "reviews-chat.yaml": by_hand.reviews_chat,
    "reviews-judge.yaml": by_hand.reviews_judge,
    "reviews-openai.yaml": by_hand.reviews_openai,
    "summaries.yaml": by_hand.summaries,
    "transcription.yaml": by_hand.transcription,
    "video-objects.yaml": by_hand.video_objects,
}
# What needs an environment of its own: the file of tests/ that has its comparison.
ELSEWHERE = {
    "rerank-vllm.yaml": "tasks/infer/models/test_vllm_server.py",
    "rerank.yaml": "contracts/endpoints/test_scores.py",
    "reviews-vllm.yaml": "flows/test_language_models.py",
    "sentences-endpoint.yaml": "contracts/endpoints/test_vectors.py",
    "sentences-vllm.yaml": "tasks/infer/models/test_vllm_server.py",
}
# What a larger job shows too: the job that runs the same models, on like rows.
LIKE = {
    "large-model.yaml": "reviews-chat.yaml",
    "photo-labels.yaml": "posts.yaml",
    "sentences.yaml": "documents.yaml",
    "sentiment.yaml": "posts.yaml",
}
RUN = re.compile(r"overnight run deployments/jobs/([\w-]+\.yaml)\b(?!.*(?:--limit-rows|sink\.path))")
PAGES = sorted(page for page in (ROOT / "docs/how-to").glob("*.md") if page.name != "index.md")


def commands(page: Path) -> str:
    """Return the page's blocks of bash, in their order."""
    return "\n".join(re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))


def run_in_full(script: str) -> list[str]:
    """Return the job files that the commands run over all rows, into the job's own sink, once for each run."""
    return RUN.findall(script.replace("\\\n", " "))


def partition_of(name: str) -> str:
    """Return the newest day of a job that has a schedule, and an empty string for another."""
    return by_hand.NEWEST.removeprefix("date=") if "schedule" in _job(name) else ""


def ledger_of(name: str) -> Path:
    """Return the local folder with the receipt of the partition."""
    return Path(_job(name)["sink"]["path"]) / "_overnight" / (by_hand.NEWEST if partition_of(name) else "all")


def assert_each_row_is_as_by_hand(name: str, demo: Path, receipt: Mapping[str, Any], folder: Path) -> None:
    """Compare all rows and columns that a job published with what plain libraries make of the inputs.

    demo: What demo/ filled. folder: An empty one, for copies from an object store.
    """
    job, partition = _job(name), partition_of(name)
    sink = Path(job["sink"]["path"])
    if "://" in job["sink"]["path"]:
        fsspec.url_to_fs(job["sink"]["path"])[0].get(job["sink"]["path"], str(folder / "out"), recursive=True)
        sink = folder / "out"
    expected = dict(COMPARED[name](demo))
    rows = {row.pop("row_id"): row for row in published(dict(receipt), sink).to_pylist()}
    bad = {row["row_id"] for row in quarantine(sink, by_hand.NEWEST if partition else "all")}
    assert bad == {row_id for row_id, wanted in expected.items() if wanted is None}
    assert receipt["rows_quarantined"] == len(bad)
    assert receipt["rows_out"] == len(rows) == len(expected) - len(bad)
    read = _job(Path(job["source"]["job"]).name) if job["source"]["kind"] == "job" else job
    source = read["source"]["path"].rstrip("/").format(partition=partition)
    for row_id, row in rows.items():
        file = row_id.split("#")[0]
        wanted = {"uri": f"{source}/{file}", **(expected[row_id] or {})}
        assert row.keys() == wanted.keys(), row_id
        for column, value in wanted.items():
            _assert_same(row[column], value, f"{row_id} {column}")


def _assert_same(found: Any, wanted: Any, place: str) -> None:
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), place
        for name, value in wanted.items():
            _assert_same(found[name], value, f"{place}.{name}")
    elif isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
        assert len(found) == len(wanted), place
        for number, (one, value) in enumerate(zip(found, wanted, strict=True)):
            _assert_same(one, value, f"{place}[{number}]")
    elif np.asarray(wanted).dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-5, err_msg=place)
    else:
        assert found == wanted, place


def _job(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load(os.path.expandvars((JOBS / name).read_text(encoding="utf-8"))))
