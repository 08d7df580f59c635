"""The requests of rows: those that the model would get, each under the key of its answer."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from overnight.tasks.infer.batch.parts import Part, Parts
from overnight.tasks.infer.batch.sealing import REQUESTS, Requests, batched, forsaken
from overnight.tasks.infer.endpoint.response_log import key_of
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.state.run import write_json
from tests.tasks.blocks import source_block
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
