"""Paid answers are found again: by the process that got them, and by those after it."""

import time
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


def test_another_signature_of_the_same_link_has_the_same_key() -> None:
    links = [f"https://b/photo.jpg?X-Amz-Date={day}&X-Amz-Signature={day}" for day in (1, 2)]
    first, second = (key_of("a", {"text": "What is it?", "url": link}) for link in links)
    assert first == second
    assert first != key_of("a", {"text": "What is it?", "url": "https://b/other.jpg?X-Amz-Signature=1"})


def test_the_key_of_a_text_with_many_question_marks_takes_no_time() -> None:
    start = time.monotonic()
    key_of("a", {"text": "?" * 50_000})
    assert time.monotonic() - start < 1, "a search from each mark to the end takes 9 s"
