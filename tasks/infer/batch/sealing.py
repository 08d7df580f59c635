"""Seal the requests of a run before its stream: read all rows, make the request of each, and write the parts.

The first request is sent outside batches, so that a wrong key, address or model shows before a night of waiting.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from overnight.tasks.engine.row_runner import Operation, RowRunner
from overnight.tasks.engine.stage import Loaded, Stage
from overnight.tasks.errors import RowError
from overnight.tasks.infer.batch.cap import FIRST_ROWS, Cap
from overnight.tasks.infer.batch.collection import Collection
from overnight.tasks.infer.batch.connection import Connection
from overnight.tasks.infer.batch.dialects.anthropic import AnthropicBatches
from overnight.tasks.infer.batch.dialects.gemini import GeminiBatches
from overnight.tasks.infer.batch.dialects.mistral import MistralBatches
from overnight.tasks.infer.batch.dialects.openai import VARIANTS, OpenAIBatches
from overnight.tasks.infer.batch.filling import Filling
from overnight.tasks.infer.batch.parts import Parts, Request
from overnight.tasks.infer.batch.provider import Provider
from overnight.tasks.infer.batch.records import Clock, Records
from overnight.tasks.infer.batch.settings import BatchSettings
from overnight.tasks.infer.endpoint.response_log import key_of, open_log
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.infer.spending import answers_of, begin_spending, with_account
from overnight.tasks.rows.blocks import live_rows
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.rows.result import Outcome
from overnight.tasks.state.run import Run, read_json
from overnight.tasks.workers.row_isolation import TOGETHER, RowIsolation

COLUMNS = {"__key": pa.string(), "__body": pa.large_string(), "__tokens": pa.float64()}
REQUESTS = pa.schema([("row_id", pa.string()), *COLUMNS.items()])


@dataclass(frozen=True)
class Requests(Stage):
    """Runs `steps`, and makes tables (schema `REQUESTS`) with the request of each row that the model would get.

    The stream quarantines the rows that have no request.
    """

    steps: Stage | None
    model: OpenAI

    label, counts_as = "requests", "preprocess"

    def load(self, run: Run) -> "LoadedRequests":
        return LoadedRequests(self, self.steps.load(run) if self.steps else None, run)


class LoadedRequests:
    def __init__(self, stage: Requests, steps: Loaded | None, run: Run) -> None:
        self._model, self._steps = stage.model, steps
        self._where = Expression(stage.model.where) if stage.model.where else None
        self._rows = RowRunner(run, "infer", stage.label, is_trial=True)  # the stream reports failed rows

    def on(self, blocks: Iterable[pa.Table], isolation: RowIsolation | None) -> Iterator[pa.Table]:
        for block in self._steps.on(blocks, isolation) if self._steps else blocks:
            table = self._rows.run(block, [Operation("requests", lambda _: self._work)], isolation or TOGETHER)
            rows, _ = live_rows(table)
            if len(rows):
                yield rows.select(REQUESTS.names).cast(REQUESTS)

    def _work(self, live: pa.Table) -> Outcome:
        keep = np.ones(len(live), bool)
        failed: dict[int, Exception] = {}
        if self._where:
            keep, errors = self._where.holds(live, "requests: where", "infer")
            failed.update(errors)
        chosen = live.take(np.flatnonzero(keep))
        model = self._model
        bodies = model.bodies({name: model.given(name, chosen[name]) for name in model.inputs()})
        row_ids = chosen["row_id"].to_pylist()
        values: dict[str, list] = {name: [None] * len(live) for name in COLUMNS}
        for row, row_id, body in zip(np.flatnonzero(keep).tolist(), row_ids, bodies, strict=True):
            if isinstance(body, RowError):
                failed[row] = body
                continue
            request = (key_of(row_id, body), json.dumps(body), model.protocol().most_tokens(body))
            for name, value in zip(COLUMNS, request, strict=True):
                values[name][row] = value
        columns = {name: pa.array(values[name], kind) for name, kind in COLUMNS.items()}
        return Outcome(columns, keep=np.asarray(keep), failed=failed)


def batched(models: Iterable[object], run: Run) -> OpenAI | None:
    """Return the model whose requests go into batches. A sample does not wait for batches."""
    first = next(iter(models), None)
    if isinstance(first, OpenAI) and first.batch and not run.limit_rows:
        return first
    return None


def forsaken(models: Iterable[object], run: Run) -> list[str]:
    """Return the batches at the provider, begun since the last publish, that the run will not collect."""
    batches: list[str] = []
    if not any(isinstance(model, OpenAI) for model in models):
        return batches
    published = (read_json(run.ledger / "receipt.json") or {}).get("generation", "")
    is_batched = batched(models, run) is not None
    for generation in (run.ledger / "generations").names():
        if generation > published and not (is_batched and generation == run.generation):
            batches += Parts.of(replace(run, generation=generation)).open_batches()
    return batches


def seal(run: Run, model: OpenAI, tables: Iterable[pa.Table]) -> str:
    """Seal the requests in `tables` that have no answer yet, and return a sentence for the log."""
    assert model.batch
    parts, provider = Parts.of(run), provider_of(model, model.batch)
    first_rows = None
    if _cap(run, model, model.batch).is_set:
        first_rows = FIRST_ROWS
    new_parts = list(parts.seal(_without_answers(run, model, tables), provider.line, model.batch, first_rows))
    parts.finish(time.time())
    rows = sum(part.rows for part in new_parts)
    return f"batch: {rows:,} requests are sealed in {len(new_parts):,} parts"


def _without_answers(run: Run, model: OpenAI, tables: Iterable[pa.Table]) -> Iterator[Request]:
    """Yield the requests without an answer in the log or of an earlier run, after one that is sent now."""
    folder = answers_of(run, model)
    log, earlier, is_tried = open_log(folder), model.earlier_answers(None), False
    begin_spending(run, [model])
    requests = with_account(model, run).requests_to_service(folder)
    for table in tables:
        for row_id, key, text, tokens in zip(*(column.to_pylist() for column in table.columns), strict=True):
            body = json.loads(text) if model.reuse or not is_tried else {}
            if log.find(key) or earlier.find_now(key, row_id, body):
                continue
            if is_tried:
                yield Request(key, text, tokens, earlier.key_of(row_id, body))
            else:
                requests.answers([row_id], [body])
                is_tried = True


def provider_of(model: OpenAI, settings: BatchSettings) -> Provider:
    keys, headers = model.access()
    [(url, key)] = keys.items()
    connection = Connection(url, key, headers, model.key_header())
    if settings.dialect == "anthropic":
        return AnthropicBatches(connection)
    if settings.dialect == "gemini":
        return GeminiBatches(connection, model.model)
    if settings.dialect == "mistral":
        return MistralBatches(connection, model.model, settings.window)
    return OpenAIBatches(connection, VARIANTS[settings.dialect], settings.window)


def _cap(run: Run, model: OpenAI, settings: BatchSettings) -> Cap:
    return Cap(run.budget, model, settings.price, answers_of(run, model))


def filling_of(
    run: Run,
    model: OpenAI,
    clock: Clock,
    deadline: float | None,
    guard: Callable[[], None],
    warn: Callable[[str], None],
) -> Filling:
    """Return the batches of a run whose requests are sealed."""
    assert model.batch
    provider = provider_of(model, model.batch)
    folder = answers_of(run, model)
    collection = Collection(provider, model.protocol(), folder, model.batch.price, model.whole_answers())
    records = Records(Parts.of(run), collection, guard, warn)
    return Filling(records, provider, model.batch, _cap(run, model, model.batch), clock, deadline)
