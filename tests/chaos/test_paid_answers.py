"""Processes that are killed while they ask an endpoint: no answer is asked for again, staged or not."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.chaos.moments import Moments
from tests.chaos.runs import in_background, kill, ray_processes, wait_for
from tests.flows.conftest import RunJob, published
from tests.tasks.infer.chat_server import chat_server

pytestmark = pytest.mark.chaos

ROWS, AT_ONCE = 600, 8


def test_killed_processes_ask_again_only_what_was_under_way(run_job: RunJob, tmp_path: Path, moments: Moments) -> None:
    """The worker that asks is killed, and then the process of the stream with all of the attempt's workers."""
    (tmp_path / "in").mkdir()
    texts = [f"text {i}" for i in range(ROWS)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "in/a.parquet")
    with chat_server() as server:
        server.seconds = 0.05
        asks = {"kind": "openai", "model": "small", "user": "{text}", "base_url": server.url}
        job = {
            "name": "paid",
            "retries": {"delay_seconds": 1},
            "source": {"kind": "parquet", "path": str(tmp_path / "in")},
            "inference": [asks | {"max_concurrent_requests": AT_ONCE}],
            "sink": {"kind": "parquet", "path": str(tmp_path / "out"), "rows_per_part": ROWS},
        }
        with in_background(run_job, job) as running:
            for place, title in enumerate(moments.in_order(["MapWorker", "ray::infer"]), 1):
                least = ROWS * place // 3 + moments.number(0, 50)
                wait_for("answers", lambda n=least: running.done() or len(server.answered) >= n)
                assert not running.done(), running.result()
                assert kill(ray_processes(title)[0])
                moments.record(f"{title} killed with {len(server.answered)} answers")
                assert not list(tmp_path.glob("out/_overnight/all/generations/*/parts/*.part"))
            receipt = running.result(200)
    table = published(receipt, tmp_path / "out")
    assert sorted(table["generated_text"].to_pylist()) == sorted(f"{text}|{text}"[::-1] for text in texts)
    asked = Counter(text for _, text in server.seen)
    repeated = sum(asked.values()) - ROWS
    print(f"{repeated} of {ROWS} requests were repeated after two kills")
    assert asked.keys() == set(texts)
    assert repeated <= 2 * AT_ONCE
