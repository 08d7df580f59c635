"""The picture of what each worker of a cluster did, from a receipt and Ray's events."""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
BEGAN = 1_767_319_200.0  # 2026-01-02T02:00:00Z
RECEIPT = {
    "started_at": "2026-01-02T02:00:00Z",
    "stages": {
        "ingest": {"started_at": "2026-01-02T02:00:01Z", "finished_at": "2026-01-02T02:00:05Z"},
        "shuffle": {"started_at": None, "finished_at": None},
        "infer": {"started_at": "2026-01-02T02:00:02Z", "finished_at": "2026-01-02T02:00:08Z"},
    },
}


@pytest.fixture
def timeline(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import timeline

    yield timeline
    for name in ("timeline", "ray_cluster"):
        sys.modules.pop(name)


def call(name: str, node: str, worker: str, start: float, seconds: float) -> dict[str, Any]:
    times = {"ts": (BEGAN + start) * 1e6, "dur": seconds * 1e6}
    return {"cat": f"task::{name}", "name": "a function", "pid": node, "tid": worker, **times}


def test_each_stage_and_each_worker_of_each_node_has_a_lane(timeline: Any) -> None:
    read, model = "ReadBlocks->MapBatches(run_steps_in_task)", "MapWorker(MapBatches(Worker)).submit"
    calls = [
        call(model, "127.0.0.3", "worker:c", 3, 2),
        call(read, "127.0.0.2", "worker:a", 1, 0.5),
        call(read, "127.0.0.2", "worker:a", 2, 1),
        call("MapBatches->Write", "127.0.0.2", "worker:b", 6, 4),
        call("a task of Prefect", "127.0.0.1", "worker:d", 0, 9),
        {**call(model, "127.0.0.3", "worker:c", 3, 2), "cat": "task:deserialize_arguments"},
    ]
    found = timeline.record(RECEIPT, calls)
    assert found["stages"] == {"ingest": [1, 5], "infer": [2, 8]}
    reader = [["read and preprocess", 1, 1.5], ["read and preprocess", 2, 3]]
    assert found["nodes"] == {"127.0.0.2": [reader, [["write", 6, 10]]], "127.0.0.3": [[["infer", 3, 5]]]}

    picture = ET.fromstring(timeline.draw(found))
    bars = [(float(bar.get("x", 0)), float(bar.get("width", 0))) for bar in picture.findall(".//{*}rect")]
    assert len(bars) == 6
    a_second = (max(x + width for x, width in bars) - timeline.LEFT) / 10
    assert [round(width / a_second, 1) for _, width in bars] == [4, 6, 0.5, 1, 4, 2]
    texts = [text.text for text in picture.findall(".//{*}text")]
    lanes = [text for text in texts if text and not text.endswith(" s")]
    assert lanes == ["stages", "ingest", "infer", "node 1", "read and preprocess", "write", "node 2", "infer"]
