"""Every job file that ships, as it is, over the data and models of its page: each row is what plain libraries give."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
import yaml

from tasks.infer.child_server import ChildServer
from tests.flows import by_hand
from tests.flows.conftest import RunJob, published, quarantine

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "deployments/jobs"
COMPARED = {
    "article-summaries.yaml": by_hand.article_summaries,
    "captions.yaml": by_hand.captions,
    "digits-on-s3.yaml": by_hand.digits,
    "digits.yaml": by_hand.digits,
    "documents.yaml": by_hand.documents,
    "doggos.yaml": by_hand.photo_embeddings,
    "flowers.yaml": by_hand.flowers,
    "large-model.yaml": by_hand.reviews_chat,
    "orders.yaml": by_hand.orders,
    "photo-embeddings.yaml": by_hand.photo_embeddings,
    "photo-labels.yaml": by_hand.photo_labels,
    "posts.yaml": by_hand.posts,
    "reviews-chat.yaml": by_hand.reviews_chat,
    "reviews-openai.yaml": by_hand.reviews_openai,
    "sentences.yaml": by_hand.sentences,
    "sentiment.yaml": by_hand.sentiment,
    "summaries.yaml": by_hand.summaries,
    "transcription.yaml": by_hand.transcription,
    "video-objects.yaml": by_hand.video_objects,
}
# What needs an environment of its own: the file of tests/ that has its comparison.
ELSEWHERE = {"reviews-vllm.yaml": "flows/test_language_models.py"}
# The photos of the demo stand in for those of the bucket, its CLIP for OpenAI's.
SETTINGS = {"doggos.yaml": ["inference.0.model=${OVERNIGHT_DEMO}/clip", "inference.0.num_gpus=0"]}


@pytest.fixture(scope="module")
def filled(demo: Path, s3: Any, one_thread: None) -> Path:
    """What the pages' own commands make, and the two buckets."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    parts = {
        part for line in re.findall(r"^python demo/workload\.py (.*)$", pages, re.MULTILINE) for part in line.split()
    }
    for name, *arguments in (
        ["workload.py", *dict.fromkeys(parts)],
        ["make_data.py", ".demo"],
        ["train_model.py", ".demo"],
        ["upload.py", ".demo/digits", "s3://overnight/digits"],
        ["upload.py", ".demo/photos", "s3://doggos-dataset/train"],
    ):
        environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
        subprocess.run([sys.executable, ROOT / "demo" / name, *arguments], cwd=demo.parent, env=environment, check=True)
    s3.put_bucket_acl(Bucket="doggos-dataset", ACL="public-read")
    for item in s3.list_objects_v2(Bucket="doggos-dataset")["Contents"]:
        s3.put_object_acl(Bucket="doggos-dataset", Key=item["Key"], ACL="public-read")
    return demo


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """So small models gain nothing from more, which wait for each other where the workers keep all CPUs busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def settings(name: str, filled: Path) -> Iterator[list[str]]:
    """What the job is told beside its file: the address of transformers' own server, where it asks an endpoint."""
    if name != "reviews-openai.yaml":
        yield SETTINGS.get(name, [])
        return
    model = filled / "chat"
    command = [Path(sys.executable).with_name("transformers"), "serve", model, "--device", "cpu", "--port", "{port}"]
    server = ChildServer([str(part) for part in command], os.environ)
    try:
        assert server.wait("/health", 120) == ""
        here = {"base_url": f"http://127.0.0.1:{server.port}/v1", "model": model, "api_key_env": "null"}
        yield [f"inference.0.{setting}={value}" for setting, value in here.items()]
    finally:
        server.end()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", COMPARED)
def test_each_row_of_a_job_that_ships_is_what_the_plain_library_gives(
    name: str, settings: list[str], filled: Path, run_job: RunJob, tmp_path: Path
) -> None:
    job = yaml.safe_load(os.path.expandvars((JOBS / name).read_text(encoding="utf-8")))
    partition = by_hand.NEWEST.removeprefix("date=") if "schedule" in job else ""
    receipt = run_job(JOBS / name, partition, settings=settings)
    sink = Path(job["sink"]["path"])
    if "://" in job["sink"]["path"]:
        fsspec.url_to_fs(job["sink"]["path"])[0].get(job["sink"]["path"], str(tmp_path / "out"), recursive=True)
        sink = tmp_path / "out"
    expected = dict(COMPARED[name](filled))
    rows = {row.pop("row_id"): row for row in published(receipt, sink).to_pylist()}
    bad = {row["row_id"] for row in quarantine(sink, by_hand.NEWEST if partition else "all")}
    assert bad == {row_id for row_id, wanted in expected.items() if wanted is None}
    assert receipt["rows_quarantined"] == len(bad)
    assert receipt["rows_out"] == len(rows) == len(expected) - len(bad)
    source = job["source"]["path"].rstrip("/").format(partition=partition)
    for row_id, row in rows.items():
        file = row_id.split("#")[0]
        wanted = {"uri": f"{source}/{file}", **(expected[row_id] or {})}
        assert row.keys() == wanted.keys(), row_id
        for column, value in wanted.items():
            if np.asarray(value).dtype.kind == "f":
                np.testing.assert_allclose(row[column], value, rtol=1e-6, atol=1e-5, err_msg=f"{row_id} {column}")
            else:
                assert row[column] == value, f"{row_id} {column}"


def test_every_job_that_ships_is_compared_here_or_in_a_test_that_is_named() -> None:
    assert {file.name for file in JOBS.glob("*.yaml")} == COMPARED.keys() | ELSEWHERE.keys()
    assert [file for file in ELSEWHERE.values() if not (ROOT / "tests" / file).is_file()] == []
