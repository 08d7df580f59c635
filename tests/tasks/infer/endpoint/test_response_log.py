"""Paid answers are found again: by the process that got them, and by those after it."""

from pathlib import Path

import pytest

from overnight.tasks.infer.endpoint import response_log
from overnight.tasks.infer.endpoint.response_log import key_of, open_log
from overnight.tasks.storage.location import Location


def test_the_process_of_a_trial_and_later_ones_find_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_log, "FIRST_ANSWERS", 2)
    place, keys = Location(str(tmp_path / "answers")), [key_of(f"a#{row}", {"ask": "x"}) for row in range(4)]
    log = open_log(place)
    for row, key in enumerate(keys[:3]):
        assert log.find(key) is None
        log.add(key, {"text": row})
    assert [log.find(key) for key in keys] == [{"text": 0}, {"text": 1}, None, None], "memory holds the first ones"
    assert [open_log(place).find(key) for key in keys] == [{"text": 0}, {"text": 1}, {"text": 2}, None]
    assert key_of("a#0", {"ask": "y"}) not in keys


def test_without_a_place_nothing_is_kept() -> None:
    log = open_log(None)
    log.add("k", 1)
    assert log.find("k") is None
