"""The records of parts: what a run writes for the receipt, and what it may not write."""

from pathlib import Path

import pytest

from overnight.tasks.infer.batch.collection import Collected
from overnight.tasks.infer.batch.provider import Batch, Phase
from overnight.tasks.infer.batch.records import Clock
from tests.tasks.infer.batch.client import ROWS, filling, keys

URL = "http://127.0.0.1:9/v1"  # nothing is sent


def test_the_record_counts_what_was_charged_without_an_answer(tmp_path: Path) -> None:
    records = filling(URL, tmp_path, Clock()).records
    sentences: list[str] = []
    records.warn = sentences.append
    part = records.items["00000"]
    records.note(part, records.forgotten("batch-1", part), Collected())
    records.end(part)
    assert records.batch_ids() == {"", "batch-1"}
    record = records.written("openai")
    assert (record["requests"], record["answered"], record["charged"], record["repeated"]) == (ROWS, 0, 10, 10)
    assert record["left"] == ROWS
    assert sentences[0] == "batch: the provider has no batch batch-1 any more; its 10 requests may be paid"
    assert sentences[-1] == "batch: 10 of 10 requests were charged without a new answer"


def test_a_part_is_saved_only_by_the_run_that_holds_the_partition(tmp_path: Path) -> None:
    records = filling(URL, tmp_path, Clock()).records

    def refuse() -> None:
        raise RuntimeError("another run holds it")

    records.guard = refuse
    with pytest.raises(RuntimeError):
        records.end(records.items["00000"])
    assert records.parts.all()[0].state == "sealed"


def test_the_keys_of_a_part_are_those_of_its_sealed_requests(tmp_path: Path) -> None:
    for dialect in ("openai", "anthropic", "gemini", "mistral"):
        records = filling(URL, tmp_path / dialect, Clock(), dialect=dialect).records
        assert records.keys(records.items["00001"]) == set(keys(dialect)[10:20])


def test_a_batch_that_was_refused_as_a_whole_charges_nothing(tmp_path: Path) -> None:
    records = filling(URL, tmp_path, Clock()).records
    part = records.items["00000"]
    records.note(part, Batch("b", "failed", Phase.FAILED), Collected())
    expected = {"id": "b", "state": "failed", "requests": 10, "answered": 0, "refused": 0, "charged": 0}
    assert part.batches == [expected]
