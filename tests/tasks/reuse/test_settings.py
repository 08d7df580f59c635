"""Requests that are the same have the same key, and any other request has another."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from overnight.tasks.reuse.settings import Reuse, reuse_key

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)
BODIES = st.dictionaries(st.text(), VALUES, min_size=1)


def key(body: Any, row_id: str | None = None, **changes: str) -> str:
    place = {"dialect": "ChatCompletions", "address": "https://api.openai.com/v1"} | changes
    return reuse_key(place["dialect"], place["address"], body, row_id)


@given(BODIES, st.data())
def test_any_change_of_the_body_misses(body: dict[str, Any], data: st.DataObject) -> None:
    changed: Any = copy.deepcopy(body)
    parents, value = [], changed
    while isinstance(value, dict | list) and value:  # to a value at any depth
        places = list(value) if isinstance(value, dict) else list(range(len(value)))
        parents.append((value, data.draw(st.sampled_from(places))))
        value = value[parents[-1][1]]
    parent, place = parents[-1]
    parent[place] = data.draw(VALUES)
    assert (key(changed) == key(body)) == (json.dumps(changed) == json.dumps(body))
    del parent[place]
    assert key(changed) != key(body)
    assert key(body) == key(copy.deepcopy(body))


@given(BODIES, st.text(), st.text())
def test_the_endpoint_and_the_row_count(body: dict[str, Any], first: str, second: str) -> None:
    assert (key(body, address=first) == key(body, address=second)) == (first == second)
    assert (key(body, dialect=first) == key(body, dialect=second)) == (first == second)
    assert (key(body, first) == key(body, second)) == (first == second)
    assert key(body, first) != key(body)


def test_the_order_of_a_schemas_fields_counts_because_the_model_writes_them_in_this_order() -> None:
    assert key({"schema": {"reason": 1, "verdict": 2}}) != key({"schema": {"verdict": 2, "reason": 1}})


@pytest.mark.parametrize("path", ["s3://bucket/answers", "/data/answers", "${ANSWERS}/all", "~/answers"])
def test_a_folder_is_the_same_for_all_jobs(path: str) -> None:
    assert Reuse(path=path).days == 90


@pytest.mark.parametrize("path", ["answers", "hf://datasets/a/b", "https://example.com/a", "s3://key:secret@bucket/a"])
def test_other_places_are_refused(path: str) -> None:
    with pytest.raises(ValidationError):
        Reuse(path=path)
