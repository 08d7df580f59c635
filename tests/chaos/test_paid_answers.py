"""A run that is killed while it asks an endpoint: what was answered is not asked for again, staged or not."""

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.chaos.runs import finish, started_runs, wait_until
from tests.flows.conftest import published
from tests.tasks.infer.chat_server import chat_server

pytestmark = pytest.mark.chaos

ROWS, AT_ONCE = 600, 8


def test_a_killed_run_asks_again_only_what_was_under_way(prefect_api: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    texts = [f"text {i}" for i in range(ROWS)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "in/a.parquet")
    with chat_server() as server, started_runs(tmp_path, prefect_api) as start:
        server.seconds = 0.05
        asks = {"kind": "openai", "model": "small", "user": "{text}", "base_url": server.url}
        job = {
            "name": "paid",
            "source": {"kind": "parquet", "path": "in"},
            "inference": [asks | {"requests_at_once": AT_ONCE}],
            "sink": {"kind": "parquet", "path": "out", "rows_per_part": ROWS},
        }
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
        for kills in (1, 2):
            process = start()
            until = kills * ROWS // 3
            wait_until(lambda until=until: len(server.answered) >= until, process)
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            time.sleep(3)  # Ray's processes notice that their driver is gone
        assert not list(tmp_path.glob("out/_overnight/all/generations/*/parts/*.part"))
        receipt = finish(start())
    table = published(receipt, tmp_path / "out")
    assert sorted(table["generated_text"].to_pylist()) == sorted(f"{text}|{text}"[::-1] for text in texts)
    asked = Counter(text for _, text in server.seen)
    repeated = sum(asked.values()) - ROWS
    print(f"{repeated} of {ROWS} requests were repeated after two kills")
    assert asked.keys() == set(texts)
    assert repeated <= 2 * AT_ONCE
