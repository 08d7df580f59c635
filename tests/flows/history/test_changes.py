"""What changed between two publishes."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.flows.history.states import lines_of, receipt


def changed(record: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return a receipt whose ingredients have another value at `key`, such as `models.0.linear.py`."""
    result = copy.deepcopy(record)
    place: Any = result["ingredients"]
    *names, last = key.split("/")
    for name in names:
        place = place[int(name) if name.isdecimal() else name]
    place[last] = value
    return {**result, "fingerprint": "f2"}


@pytest.mark.parametrize(
    ("key", "value", "kind", "text"),
    [
        ("models/0/kwargs.weights", "w2", "model", "kwargs.weights of inference.python"),
        ("models/0/linear.py", "c2", "code", "linear.py of inference.python"),
        ("settings/inference/0/kwargs", {"crop": 2}, "settings", "inference.python.kwargs.crop: 4 -> 2"),
    ],
)
def test_what_changed_stands_beside_the_regression(tmp_path: Path, key: str, value: Any, kind: str, text: str) -> None:
    good = receipt("2026-01-01")
    bad = changed(receipt("2026-01-01", 10.0), key, value)
    line = lines_of(tmp_path, (good, None), (bad, None))[1]
    assert [remark.as_json() for remark in line.changes] == [{"kind": kind, "text": text}]


def test_versions_commits_settings_that_change_no_result_and_inputs_count_as_changes(tmp_path: Path) -> None:
    good = receipt("2026-01-01", commits={"org/model": "a" * 40}, settings={"name": "daily", "workers": 2})
    more: dict[str, Any] = {"versions": {"torch": "2.1", "commit": "c" * 40}, "commits": {"org/model": "b" * 40}}
    more |= {"settings": {"name": "daily", "workers": 4}, "rows_in": 5000, "bytes_in": 10**8}
    line = lines_of(tmp_path, (good, None), ({**good, **more}, None))[1]
    assert [str(remark) for remark in line.changes] == [
        "settings: workers: 2 -> 4",
        f"model: org/model {'a' * 12} -> {'b' * 12}",
        "versions: torch 2.0 -> 2.1",
        f"code: commit none -> {'c' * 12}",
        "inputs: rows 1,000 -> 5,000",
        "inputs: bytes a row 1,000 B -> 19.5 KiB",
    ]
