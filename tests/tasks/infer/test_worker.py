"""The model's worker: batches of the size asked for, rows that it prepares itself, and the trial before the stream."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
import ray
from pydantic import ValidationError

from overnight.tasks.errors import ContractError
from overnight.tasks.infer import worker as worker_module
from overnight.tasks.infer.autotune.trial import ModelTrial
from overnight.tasks.infer.forked_worker import ForkedPreparingWorker
from overnight.tasks.infer.heavy_columns import drop_heavy
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from overnight.tasks.infer.operators import strategy
from overnight.tasks.infer.predictor import Batch, Predict, Predictor
from overnight.tasks.infer.worker import PreparingWorker, Worker
from overnight.tasks.preprocess.run_steps import run_steps
from overnight.tasks.preprocess.steps.derive_columns import DeriveColumns
from overnight.tasks.resources.plan import Pool
from overnight.tasks.rows import blocks, rebatch, result
from overnight.tasks.rows.padding import Share, without_padding
from overnight.tasks.workers import fork_server, supervisor
from overnight.tasks.workers.row_isolation import RowIsolation
from tests.tasks.blocks import source_block
from tests.tasks.runs import make_run


class Counting(Predictor):
    """Adds the size of its batch. Calls of more than `most` rows are out of memory; small ones pay for the call."""

    kind: Literal["counting"] = "counting"
    most: int = 1000

    def load(self) -> Predict:
        def predict(batch: Batch) -> dict:
            count = len(batch["x"])
            if count > self.most:
                raise MemoryError(f"no room for {count} rows")
            time.sleep(0.03)  # what a call costs, whatever its size
            return {"count": np.full(count, count), "sum": batch["x"] + 1}

        return predict


def block(count: int) -> pa.Table:
    return source_block(0, 0, pa.table({"row_id": [f"a#{i}" for i in range(count)], "x": np.arange(count)}))


def counts(tables: list[pa.Table]) -> list[int]:
    return [found for table in tables for found in table["count"].to_pylist()]


def test_padding_reaches_no_model_and_what_is_large_goes_to_it_in_smaller_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [padded] = Share(40, 10).padded([block(10)])
    assert len(padded) == 40
    worker = Worker(Link(Counting(batch_size=8)), make_run(tmp_path), share=Share(10, 2**20))
    assert counts(list(worker(padded))) == [8] * 8 + [2] * 2
    assert list(worker(padded[20:])) == []
    monkeypatch.setattr(worker_module, "MOST_BYTES_AT_ONCE", without_padding(padded)[:6].nbytes)
    assert counts(list(worker(padded))) == [4] * 8 + [2] * 2


def test_a_task_of_many_rows_goes_to_the_model_in_batches(tmp_path: Path) -> None:
    worker = Worker(Link(Counting(batch_size=4)), make_run(tmp_path))
    assert counts(list(worker(block(10)))) == [4] * 8 + [2] * 2


def test_rows_that_a_worker_prepares_come_in_batches_all_the_same(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    steps = (DeriveColumns(columns={"x": "x * 10"}),)

    def prepare(table: pa.Table, isolation: RowIsolation):
        for start in range(0, len(table), 3):
            yield from run_steps(table[start : start + 3], run, steps, 0, isolation)

    worker = PreparingWorker(prepare, link=Link(Counting(batch_size=4)), run=run)
    made = list(worker(block(10)))
    assert counts(made) == [4] * 8 + [2] * 2
    assert rebatch.joined(made)["sum"].to_pylist() == [10 * x + 1 for x in range(10)]
    assert rebatch.joined(made)["__row"].to_pylist() == list(range(10))


@pytest.mark.parametrize(("most", "pieces"), [(1, 3), (2**20, 1)])
def test_results_are_handed_on_together_while_they_are_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, pieces: int
) -> None:
    monkeypatch.setattr("overnight.tasks.infer.worker.BYTES_AT_ONCE", most)
    made = list(Worker(Link(Counting(batch_size=4)), make_run(tmp_path))(block(10)))
    assert len(made) == pieces
    assert rebatch.joined(made)["__row"].to_pylist() == list(range(10))


def test_a_forked_worker_gives_what_one_gives_that_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, steps = make_run(tmp_path), (DeriveColumns(columns={"x": "x * 10"}),)

    def prepare(table: pa.Table, isolation: RowIsolation):
        yield from run_steps(table, run, steps, 0, isolation)

    settings = {"link": Link(Counting(batch_size=4)), "run": run}
    monkeypatch.delenv(fork_server.ADDRESS, raising=False)
    with fork_server.started():
        forked = ForkedPreparingWorker(prepare=prepare, **settings)
        here = PreparingWorker(prepare, **settings)
        for count in (10, 3):
            [there], [expected] = forked(block(count)), here(block(count))
            assert blocks.visible(there).equals(blocks.visible(expected))
        with pytest.raises(ContractError, match="needs a column 'x'"):
            list(forked(block(2).drop_columns("x")))


def test_the_trial_takes_the_largest_batch_that_pays_and_fits(tmp_path: Path) -> None:
    run, sample = make_run(tmp_path), block(8)
    assert ModelTrial(Link(Counting()), run).on(sample).batch_size >= 32
    assert ModelTrial(Link(Counting(most=20)), run).on(sample).batch_size == 16
    assert ModelTrial(Link(Counting(batch_size=4)), run).on(sample).batch_size is None
    assert ModelTrial(Link(Counting()), run).on(block(0)) is None


def test_the_trial_measures_memory_of_its_own_process(tmp_path: Path) -> None:
    assert 50 * 2**20 < ModelTrial(Link(Counting(batch_size=4)), make_run(tmp_path)).on(block(8)).memory < 8 * 2**30


def test_a_worker_with_a_device_reports_the_most_memory_that_it_took_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, peaks = supervisor.Supervisor(), iter([10, 30, 30, 50])
    monkeypatch.setattr(worker_module, "peak_memory", lambda: next(peaks))
    monkeypatch.setattr(supervisor, "tell", lambda run, method, *given: getattr(state, method)(*given))
    on_cpus = Worker(Link(Counting(batch_size=4)), make_run(tmp_path))
    on_device = Worker(Link(Counting(batch_size=4, resources={"NPU": 1})), make_run(tmp_path))
    list(on_cpus(block(12)))
    assert state.peak_device_memory() is None
    list(on_device(block(12)))
    state.took_device_memory(20)  # of another worker
    assert state.peak_device_memory() == 30
    ModelTrial(Link(Counting(batch_size=4, num_gpus=1)), make_run(tmp_path)).on(block(8))
    assert (state.peak_device_memory(), next(peaks)) == (30, 50)


def test_a_batch_that_is_too_large_is_halved_for_good_and_each_halving_is_one_incident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = supervisor.Supervisor()
    monkeypatch.setattr(supervisor, "tell", lambda run, method, *given: getattr(state, method)(*given))
    worker = Worker(Link(Counting(batch_size=16, most=5)), make_run(tmp_path))
    assert counts([*worker(block(32)), *worker(block(16))]) == [4] * 48
    incidents = [(incident["what"].partition(": ")[2], incident["times"]) for incident in state.incidents()]
    assert incidents == [
        ("out of memory with 16 rows at a time, 8 from then on", 1),
        ("out of memory with 8 rows at a time, 4 from then on", 1),
    ]


@pytest.mark.parametrize("asked", [{"workers": 2}, {"num_gpus": 1}, {"num_cpus": 1}, {"resources": {"NPU": 1}}])
def test_a_worker_a_cpu_leaves_nothing_to_ask_for(asked: dict) -> None:
    with pytest.raises(ValidationError, match=f"gives every CPU a worker. Leave out {next(iter(asked))}"):
        Counting(placement="colocated", **asked)


def test_what_models_behind_do_not_read_goes_as_soon_as_a_model_is_done_with_it(tmp_path: Path) -> None:
    texts = TextEmbedding(model="minilm", text_column="text", where="label == 'long'")
    assert (texts.reads(), Counting().reads()) == (["text", "label"], None)
    table = block(2)
    for name in ("image", "sound"):
        table = blocks.with_column(table, name, pa.array([b"a", b"b"]))
    worker = Worker(Link(Counting(batch_size=4), "first_", read=("sound",)), make_run(tmp_path))
    assert list(blocks.visible(next(worker(table))).column_names) == [
        "row_id",
        "x",
        "sound",
        "first_count",
        "first_sum",
    ]


def test_bytes_of_a_table_are_published_and_those_that_are_files_are_left_out_by_name(tmp_path: Path) -> None:
    table = blocks.with_column(block(2), "photo", pa.array([b"a", None]))
    for without_a_model in (True, False):

        def done(without_a_model: bool = without_a_model, **settings: bool) -> pa.Table:
            if without_a_model:
                return drop_heavy(table, [], **settings)
            return next(Worker(Link(Counting(batch_size=4), **settings), make_run(tmp_path))(table))

        assert "photo" not in blocks.visible(done()).column_names
        assert blocks.left_out(done()) == ["photo"]
        stays = done(bytes_stay=True)
        assert (blocks.visible(stays)["photo"].to_pylist(), blocks.left_out(stays)) == ([b"a", None], [])


class Meeting(Predictor):
    """Says whether another call of the same process was under way."""

    kind: Literal["meeting"] = "meeting"

    def calls_at_once(self) -> int:
        return 2

    def load(self) -> Predict:
        under_way: list[int] = []

        def predict(batch: Batch) -> dict:
            under_way.append(1)
            began, met = time.monotonic(), False
            while not met and time.monotonic() < began + 3:
                met = len(under_way) > 1
                time.sleep(0.01)
            time.sleep(0.2)
            under_way.pop()
            told = {"met": met, "began": began, "ended": time.monotonic()}
            return {name: [value] * len(batch["x"]) for name, value in told.items()}

        return predict


def test_a_worker_with_a_device_has_two_calls_under_way(ray_session: None, tmp_path: Path) -> None:
    settings = {"link": Link(Meeting()), "run": make_run(tmp_path)}
    found = (
        ray.data.from_arrow([block(4)] * 6)
        .map_batches(
            Worker,
            fn_constructor_kwargs=settings,
            batch_size=4,
            batch_format="pyarrow",
            compute=strategy(Pool("model", 1, 1, 0.5, 0), Meeting().calls_at_once()),
            num_cpus=0.5,
        )
        .to_pandas()
    )
    assert len(found) == 24
    assert found["met"].sum() >= 8
    calls = found[["began", "ended"]].drop_duplicates().sort_values("began").to_numpy()
    busy, until = 0.0, 0.0
    for began, ended in calls:
        busy, until = busy + max(ended - max(began, until), 0), max(until, ended)
    assert (calls[:, 1] - calls[:, 0]).sum() > busy + 0.3
    assert found["__infer_seconds"].sum() < busy + 0.3  # of the device's time, not of both calls' waiting


def test_a_worker_that_was_started_again_makes_one_call_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, run = Link(Meeting()), make_run(tmp_path)

    def met(worker: Worker) -> list[bool]:
        with ThreadPoolExecutor(2) as threads:
            made = threads.map(lambda _: list(worker(block(4))), range(2))
        return [found for tables in made for table in tables for found in table["met"].to_pylist()]

    assert all(met(Worker(link, run)))
    monkeypatch.setattr("overnight.tasks.infer.worker.was_restarted", lambda: True)
    assert not any(met(Worker(link, run)))


def test_where_a_condition_holds_the_model_runs_elsewhere_is_null(tmp_path: Path) -> None:
    worker = Worker(Link(Counting(batch_size=4, where="x % 3 == 0"), "heavy_"), make_run(tmp_path))
    made = rebatch.joined(worker(block(40)))
    assert made["__row"].to_pylist() == list(range(40))
    assert made["heavy_sum"].to_pylist() == [x + 1 if x % 3 == 0 else None for x in range(40)]
    # 14 rows of 40, which are in hand 32 at a time: calls of 4, not of the one or two that four rows hold
    assert [count for count in made["heavy_count"].to_pylist() if count] == [4] * 8 + [3] * 3 + [3] * 3
    assert made["__state"].to_pylist() == [blocks.LIVE] * 40


def test_a_condition_that_fails_for_a_row_quarantines_it_and_calls_the_model_once(tmp_path: Path) -> None:
    for where, sums in (("10 // (x - 3) > 0", [None] * 4 + [5, 6, 7, 8]), ("10 // (x - 3) > 99", [None] * 8)):
        worker = Worker(Link(Counting(batch_size=8, where=where)), make_run(tmp_path))
        made = rebatch.joined(worker(block(8)))
        states = made["__state"].to_pylist()
        assert [row for row, state in enumerate(states) if state == blocks.QUARANTINED] == [3]
        assert "Division by zero" in made["__error_message"][3].as_py()
        if any(sums):
            assert made["sum"].to_pylist() == sums
            assert made["count"].to_pylist() == [None] * 4 + [4] * 4


def test_where_no_row_is_the_models_its_columns_are_null_in_the_types_of_the_trial(tmp_path: Path) -> None:
    model, run = Counting(batch_size=4, where="x > 100"), make_run(tmp_path)
    columns = ModelTrial(Link(model), run).on(block(8)).columns
    assert columns == pa.schema({"count": pa.int64(), "sum": pa.int64()})
    (made,) = Worker(Link(model, "heavy_"), run, columns=columns)(block(10))
    assert made["heavy_sum"].to_pylist() == [None] * 10
    assert made["heavy_sum"].type == pa.int64()
    assert made["x"].to_pylist() == list(range(10))
    (unknown,) = Worker(Link(model), run)(block(10))
    assert "sum" not in unknown.column_names


def test_a_condition_over_a_column_that_is_not_there_or_no_condition_says_so(tmp_path: Path) -> None:
    wrong = {"y > 1": "where: 'y > 1' needs a column 'y'", "x + 1": "expected true or false, found int64"}
    for where, says in wrong.items():
        worker = Worker(Link(Counting(where=where)), make_run(tmp_path))
        with pytest.raises(ContractError, match=re.escape(says)) as raised:
            list(worker(block(4)))
        assert raised.value.stage == "infer"
    with pytest.raises(ValidationError, match="where"):
        Counting(where="x >")


def test_the_trial_runs_a_model_whatever_its_condition_says(tmp_path: Path) -> None:
    found = ModelTrial(Link(Counting(batch_size=4, where="light_confidence < 0.5")), make_run(tmp_path)).on(block(8))
    assert found.seconds_a_row > 0


class Knowing(Predictor):
    """Says which of its rows failed: those with an odd x. `asked` holds every row that it saw."""

    kind: Literal["knowing"] = "knowing"

    def load(self) -> Predict:
        asked: list[int] = []

        def predict(batch: Batch) -> result.Outcome:
            asked.extend(batch["x"].tolist())
            odd = {row: ValueError(f"{x} is odd") for row, x in enumerate(batch["x"]) if x % 2}
            return result.Outcome({"seen": [len(asked)] * len(batch["x"])}, failed=odd)

        return predict


@pytest.mark.parametrize("where", [None, "x >= 5"])
def test_rows_that_a_model_knows_to_have_failed_cost_no_other_row_a_second_call(
    tmp_path: Path, where: str | None
) -> None:
    worker = Worker(Link(Knowing(batch_size=4, where=where)), make_run(tmp_path))
    done = rebatch.joined(worker(block(12)))
    failed = [x for x in range(12) if x % 2 and (where is None or x >= 5)]
    states = done["__state"].to_pylist()
    assert [row for row, state in enumerate(states) if state == blocks.QUARANTINED] == failed
    assert [done["__error_message"][x].as_py() for x in failed] == [f"{x} is odd" for x in failed]
    assert max(seen for seen in done["seen"].to_pylist() if seen) == (12 if where is None else 7)
