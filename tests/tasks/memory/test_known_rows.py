"""A worker takes remembered results, calls its model for the other rows, and leaves theirs to later workers."""

import importlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import RowError
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.python import PythonPredictor
from overnight.tasks.infer.predictor import Batch, Predict, Predictor
from overnight.tasks.infer.trial import ModelTrial, Trial
from overnight.tasks.infer.worker import Worker
from overnight.tasks.memory.made_rows import store
from overnight.tasks.memory.settings import ModelMemory
from overnight.tasks.preprocess.run_steps import Steps
from overnight.tasks.preprocess.steps.split_text import SplitText
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.rows.result import Outcome
from overnight.tasks.state.staged_parts import read_records
from overnight.tasks.write.publish.receipt import rows_remembered
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.stream.staging import write_part
from tests.tasks.blocks import numbered_block
from tests.tasks.runs import make_run

CALLS: list[list[int]] = []
LOADS: list[str] = []
GENERATION = "20260102T000000-ffffff-aaaaaa"


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()
    LOADS.clear()


class Noting(Predictor):
    """Notes its rows. Rows with x of 7 fail."""

    kind: Literal["noting"] = "noting"

    def inputs(self) -> list[str]:
        return ["x"]

    def load(self) -> Predict:
        LOADS.append(self.kind)

        def predict(batch: Batch) -> Outcome:
            CALLS.append(batch["x"].tolist())
            failed = {row: RowError("seven") for row, x in enumerate(batch["x"]) if x == 7}
            vectors = np.stack([batch["x"], batch["x"] + 0.1], axis=1)
            return Outcome({"vector": vectors, "text": [f"t{x}" for x in batch["x"]]}, failed=failed)

        return predict


def link_of(folder: Path, prefix: str = "", is_read: bool = True, **settings: Any) -> Link:
    memory = ModelMemory(str(folder / "memory"), "k" * 32, prefix.rstrip("_") or "noting", 100_000, is_read)
    return Link(Noting(batch_size=4, **settings), prefix, memory=memory, columns=pa.schema([("text", pa.string())]))


def worked(folder: Path, block: pa.Table, part: str = "a-000000", **options: Any) -> tuple[pa.Table, dict[str, int]]:
    """Return the block after a new worker, and the number of known rows, after what it made was stored."""
    worker = Worker(link_of(folder, **options), make_run(folder))
    result = rebatch.joined(worker.on([block], None))
    known = store(result, f"{GENERATION}-{part}")
    return result.drop_columns([name for name in result.column_names if name.startswith(blocks.REMEMBERED)]), known


def content(block: pa.Table) -> pa.Table:
    return blocks.live_rows(block)[0].combine_chunks()


def test_known_rows_are_neither_computed_nor_is_the_model_loaded(tmp_path: Path) -> None:
    block = numbered_block(6)
    first, known = worked(tmp_path, block)
    assert (known, [x for call in CALLS for x in call]) == ({}, list(range(6)))
    CALLS.clear(), LOADS.clear()
    again, known = worked(tmp_path, block.take([5, 3, 1, 0, 2, 4]), "b-000000", prefix="m_")
    assert (known, CALLS, LOADS) == ({"m": 6}, [], [])
    expected = content(first).rename_columns(["row_id", "x", "m_vector", "m_text"])
    assert content(again).sort_by("x").equals(expected)


def test_only_unknown_rows_reach_the_model_and_results_stay_in_order(tmp_path: Path) -> None:
    worked(tmp_path, numbered_block(20).take([1, 5, 19, 12]))
    CALLS.clear()
    block = numbered_block(20)
    result, known = worked(tmp_path, block, "b-000000")
    assert known == {"noting": 4}
    rest = [x for x in range(20) if x not in (1, 5, 7, 12, 19)]
    assert [x for call in CALLS for x in call if x != 7] == rest
    assert max(map(len, CALLS)) == 4, "batches are full although rows are known"
    fresh, _ = worked(tmp_path, block, "c-000000", is_read=False)
    assert content(result).equals(content(fresh)), "as if nothing had been known"
    assert result["__state"].to_pylist() == fresh["__state"].to_pylist()


def test_results_that_leave_a_column_as_it_was_are_remembered_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model strips texts. A call whose texts have no spaces replaces no column."""
    (tmp_path / "strips_texts.py").write_text(
        "def strip(batch):\n    CALLS.append(len(batch['text']))\n"
        "    return {'text': [text.strip() for text in batch['text']]}\nCALLS = []\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    model = PythonPredictor(target="strips_texts:strip", columns=["text"], batch_size=2)
    link = replace(link_of(tmp_path), model=model, columns=None)
    run = make_run(tmp_path)

    def texts(*texts: str, part: str) -> list[str]:
        block = numbered_block(len(texts), text=pa.array(texts), part=pa.array([part] * len(texts)))
        result = rebatch.joined(Worker(link, run).on([block], None))
        store(result, f"{GENERATION}-{part}")
        return content(result)["text"].to_pylist()

    assert texts(" a", "b", "c", "d", part="a") == ["a", "b", "c", "d"]
    assert texts("c", " a", "e", "f", "d", part="b") == ["c", "a", "e", "f", "d"]
    calls = importlib.import_module("strips_texts").CALLS
    assert calls == [2, 2, 2], "only e and f are unknown, although another column changed"
    assert texts("e", " a", "c", part="c") == ["e", "a", "c"]
    assert len(calls) == 3


def test_a_row_that_failed_is_not_remembered(tmp_path: Path) -> None:
    for part in ("a-000000", "b-000000"):
        CALLS.clear()
        result, _ = worked(tmp_path, numbered_block(8), part)
        assert [7] in CALLS or 7 in CALLS[-1]
        assert result["__state"].to_pylist() == [blocks.LIVE] * 7 + [blocks.QUARANTINED]


def test_where_keeps_rows_from_the_memory_as_from_the_model(tmp_path: Path) -> None:
    worked(tmp_path, numbered_block(6), where="x < 4")
    assert CALLS == [[0, 1, 2, 3]]
    CALLS.clear(), LOADS.clear()
    result, known = worked(tmp_path, numbered_block(6), "b-000000", where="x between 1 and 2")
    assert (known, CALLS, LOADS) == ({"noting": 2}, [], [])
    assert content(result)["text"].to_pylist() == [None, "t1", "t2", None, None, None]
    worked(tmp_path, numbered_block(6), "c-000000", where="x > 2")
    assert CALLS == [[4, 5]]


def test_a_forced_run_computes_all_rows_and_its_results_come_first(tmp_path: Path) -> None:
    worked(tmp_path, numbered_block(3))
    worked(tmp_path, numbered_block(3), "b-000000", is_read=False)
    assert CALLS == [[0, 1, 2]] * 2
    assert len(list((tmp_path / "memory").rglob("*.rows"))) == 2


def test_a_trial_of_known_rows_loads_no_model_and_repeats_the_measures(tmp_path: Path) -> None:
    run, sample = make_run(tmp_path), numbered_block(6)
    link = link_of(tmp_path)
    first = ModelTrial(link, run).on(sample, link)
    assert isinstance(first, Trial)
    worked(tmp_path, sample)
    LOADS.clear(), CALLS.clear()
    again = ModelTrial(link, run).on(sample, link)
    assert isinstance(again, Trial)
    assert (LOADS, CALLS) == ([], [])
    assert (again.memory, again.seconds_a_row, again.columns) == (first.memory, first.seconds_a_row, first.columns)
    assert again.behind.equals(first.behind.select(again.behind.column_names)) or again.behind.num_rows == 6
    ModelTrial(link, run).on(numbered_block(9), link)
    assert LOADS == ["noting"], "a row of the sample is new"


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "other bytes": lambda content: b"x" * len(content),
    "cut": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    **{f"byte {part}/5": lambda content, part=part: flipped(content, len(content) * part // 5) for part in range(5)},
}


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_and_files_without_index_lose_only_the_saving(damage: str, tmp_path: Path, caplog: Any) -> None:
    block = numbered_block(6)
    worked(tmp_path, block)
    [rows] = (tmp_path / "memory").rglob("*.rows")
    (rows.parent / "20260101T000000-x.rows").write_bytes(b"killed before the index")
    rows.write_bytes(DAMAGES[damage](rows.read_bytes()))
    CALLS.clear()
    with caplog.at_level(logging.WARNING):
        _, known = worked(tmp_path, block, "b-000000")
    assert (known, [x for call in CALLS for x in call]) == ({}, list(range(6)))
    assert "damaged" in caplog.text
    _, known = worked(tmp_path, block, "c-000000")
    assert known == {"noting": 6}, "the newest one serves"


def test_a_memory_that_cannot_be_written_fails_no_row(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "memory" / ("k" * 32) / f"{GENERATION}-a-000000.rows/x").mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        result, known = worked(tmp_path, numbered_block(3))
    assert (len(content(result)), known) == (3, {})
    assert "not remembered" in caplog.text


def test_a_part_of_two_models_and_of_several_rows_a_row_leaves_the_rows_of_both(tmp_path: Path) -> None:
    run, sink = make_run(tmp_path), ParquetSink(path=str(tmp_path / "out"))
    chunks = SplitText(column="text", size=4)

    def staged(number: int) -> dict[str, int]:
        links = [link_of(tmp_path, prefix) for prefix in ("a_", "b_")]
        block = numbered_block(6, text=pa.array(["one two three"] * 6))
        pieces = Steps((chunks,)).load(run).on([block], None)
        for link in links:
            pieces = list(Worker(link, run).on(pieces, None))
        write_part(run, sink, f"a-{number:06d}", *pieces)
        [record] = [each for each in read_records(run.parts) if each.name == f"a-{number:06d}"]
        assert not [name for name in record.schema.names if name.startswith(blocks.REMEMBERED)]
        return rows_remembered([record])

    assert staged(0) == {}
    count = sum(map(len, CALLS)) // 2
    assert count > 6
    CALLS.clear()
    assert staged(1) == {"a": count, "b": count}
    assert CALLS == []
    first, second = (
        pq.read_table(tmp_path / f"out/_overnight/date=2026-01-02/generations/generation/parts/a-00000{n}.part")
        for n in (0, 1)
    )
    assert first.equals(second)
