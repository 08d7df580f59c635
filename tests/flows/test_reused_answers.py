"""Jobs whose models reuse the answers of earlier runs, as Prefect and Ray run them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

from tests import jobs
from tests.flows.conftest import Overnight, RunJob, assert_settled, parquet, published, write_parquet
from tests.tasks.infer.chat_server import ChatServer, chat_server

pytestmark = pytest.mark.slow

TEXTS = [f"text {number}" for number in range(40)]
PRICES = {"price_per_million_input_tokens": 1.0, "price_per_million_output_tokens": 2.0}


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as state:
        yield state


def job_of(folder: Path, server: ChatServer, name: str = "first", **settings: Any) -> dict[str, Any]:
    reuse = {"path": f"{folder}/answers", "days": 30}
    asks = {"kind": "openai", "model": "small", "user": "{text}", "base_url": server.url, "reuse": reuse, **PRICES}
    sink = {"kind": "parquet", "path": f"{folder}/{name}"}
    return jobs.job(folder, name=name, source=parquet(folder), inference=[asks | settings], sink=sink)


def write_texts(folder: Path, texts: list[str]) -> None:
    write_parquet(folder / "in/a.parquet", n=range(len(texts)), text=texts)


def answers(receipt: dict[str, Any], folder: Path) -> list[str]:
    return published(receipt, folder).sort_by("n")["generated_text"].to_pylist()


def test_a_later_run_pays_only_for_the_rows_that_changed(
    tmp_path: Path, run_job: RunJob, overnight: Overnight, server: ChatServer
) -> None:
    write_texts(tmp_path, TEXTS)
    job = job_of(tmp_path, server)
    sample = run_job(job, limit_rows=10)
    assert sample["reused"]["openai"]["answers"] == 0
    assert len(server.requests()) == 10
    receipt = run_job(job)
    assert_settled(receipt, written=40)
    assert receipt["reused"]["openai"]["answers"] == 10, "those of the sample"
    assert server.requests() == dict.fromkeys(TEXTS, 1)
    first = answers(receipt, tmp_path / "first")

    again = run_job(job, force=True)
    assert answers(again, tmp_path / "first") == first
    assert server.requests() == dict.fromkeys(TEXTS, 1), "nothing was paid for twice"
    tokens = again["columns"]["prompt_tokens"]["sum"], again["columns"]["completion_tokens"]["sum"]
    cost = again["columns"]["cost"]["sum"]
    figures = dict(zip(("prompt_tokens", "completion_tokens"), tokens, strict=True))
    assert again["reused"] == {"openai": {"answers": 40, **figures, "cost": pytest.approx(cost)}}
    assert "of these, reused" in (tmp_path / "first/_overnight/all/report.html").read_text()

    changed = [*TEXTS[:35], *(f"{text}," for text in TEXTS[35:])]
    write_texts(tmp_path, changed)
    done = overnight("run", str(tmp_path / "first.yaml"))
    assert "reused by openai: 35 answers of earlier runs, 245 + 105 tokens, a cost of 0.000455 saved" in done.stdout
    assert server.requests() == dict.fromkeys([*TEXTS, *changed], 1)


def test_two_jobs_share_a_folder_at_the_same_time(tmp_path: Path, run_job: RunJob, server: ChatServer) -> None:
    write_texts(tmp_path, TEXTS)
    jobs_of_both = [job_of(tmp_path, server, name) for name in ("first", "second")]
    with ThreadPoolExecutor(2) as both:
        runs = [both.submit(copy_context().run, run_job, job) for job in jobs_of_both]
    for run in runs:
        assert_settled(run.result(), written=40)
    assert {path.name for path in (tmp_path / "answers").iterdir()} == {"first", "second"}
    asked = sum(server.requests().values())
    for job in jobs_of_both:
        assert run_job(job, force=True)["reused"]["openai"]["answers"] == 40
    assert sum(server.requests().values()) == asked
