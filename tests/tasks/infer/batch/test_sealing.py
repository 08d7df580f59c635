"""The requests of rows: those that the model would get, each under the key of its answer."""

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from overnight.tasks.infer.batch.parts import Part, Parts
from overnight.tasks.infer.batch.sealing import REQUESTS, Requests, batched, forsaken, seal
from overnight.tasks.infer.endpoint.response_log import key_of
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.reuse.kept_answers import keep
from overnight.tasks.state.run import write_json
from overnight.tasks.storage.location import Location
from tests.tasks.blocks import source_block
from tests.tasks.infer.batch_server import batch_server
from tests.tasks.runs import make_run


def test_a_row_that_the_model_would_not_get_has_no_request(tmp_path: Path) -> None:
    model = OpenAI(model="m", user="{text}", where="n <> 1", batch={})
    loaded = Requests(None, model).load(make_run(tmp_path))
    rows = pa.table({"row_id": ["a", "b", "c"], "text": ["x", "y", "z"], "n": [0, 1, 2]})
    [table] = loaded.on([source_block(0, 0, rows)], None)
    assert table.schema == REQUESTS
    assert table["row_id"].to_pylist() == ["a", "c"]
    body = json.loads(table["__body"][0].as_py())
    assert body["messages"] == [{"role": "user", "content": "x"}]
    assert table["__key"][0].as_py() == key_of("a", body)


def test_a_sample_does_not_wait_for_batches(tmp_path: Path) -> None:
    model, run = OpenAI(model="m", user="{text}", batch={}), make_run(tmp_path)
    assert batched([model], run) is model
    assert batched([OpenAI(model="m", user="{text}")], run) is None
    assert batched([model], make_run(tmp_path, limit_rows=5)) is None


def test_batches_that_the_run_will_not_collect_are_named(tmp_path: Path) -> None:
    run = make_run(tmp_path, generation="20261128T020000-b")
    model = OpenAI(model="m", user="{text}", batch={})
    for generation in ("20261127T020000-a", run.generation):
        parts = Parts.of(replace(run, generation=generation))
        parts.save(Part("00000", "d" * 64, 1, 1.0, state="created", batch=f"of {generation[-1]}"))
        parts.save(Part("00001", "d" * 64, 1, 1.0, state="done", batch="ended"))
        parts.save(Part("00002", "d" * 64, 1, 1.0, state="creating"))
    label = "00002-dddddddddddddddd"
    assert forsaken([model], run) == ["of a", f"20261127T020000-a/{label}"]
    assert len(forsaken([OpenAI(model="m", user="{text}")], run)) == 4
    assert forsaken([], run) == []
    write_json(run.ledger / "receipt.json", {"generation": "20261127T020000-a"})
    assert forsaken([model], run) == []


def table_of(model: OpenAI, folder: Path, texts: list[str]) -> pa.Table:
    loaded = Requests(None, model).load(make_run(folder))
    rows = pa.table({"row_id": [f"row {text}" for text in texts], "text": texts})
    [table] = loaded.on([source_block(0, 0, rows)], None)
    return table


def test_known_answers_of_earlier_runs_are_not_sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with batch_server() as server:
        reuse = {"path": str(tmp_path / "kept")}
        model = OpenAI(model="m", user="{text}", base_url=server.url, reuse=reuse, batch={"rows": 2})
        run, texts = make_run(tmp_path), ["a", "b", "c", "d"]
        body = model.body([{"role": "user", "content": "b"}])
        answer = {"text": "B", "prompt_tokens": 1, "completion_tokens": 1, "finish_reason": "stop"}
        key = model.earlier_answers(None).key_of("row of another run", body)
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-generation-openai"
        keep(Location(str(tmp_path / "kept/job")), name, [{"key": key, "answer": answer, "at": int(time.time())}])
        monkeypatch.setattr("overnight.tasks.infer.batch.sealing.begin_spending", lambda *_: None)
        assert seal(run, model, [table_of(model, tmp_path, texts)]) == "batch: 2 requests are sealed in 1 parts"
        [part] = Parts.of(run).all()
        sealed = [
            json.loads(line)["body"]["messages"][0]["content"] for line in Parts.of(run).requests(part).splitlines()
        ]
        assert sealed == ["c", "d"]  # a was sent first, and b has an answer
        assert server.online == {"a": 1}
        later = Parts.of(run).reuse_keys(part)
        expected = model.earlier_answers(None).key_of("any row", model.body([{"role": "user", "content": "c"}]))
        assert expected in later.values()
        assert len(later) == 2
