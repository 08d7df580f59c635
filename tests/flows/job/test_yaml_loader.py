"""What is written for a job file is read back as it was, whatever a text looks like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.flows.job.yaml_loader import parse_yaml, yaml_line

LOOKALIKES = ["1e3", ".5", ".inf", "010", "1_000", "0o17", "no", "y", "true", "~", "null", "", "<<", "=", "12:30"]
texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20) | st.sampled_from(LOOKALIKES)


@given(texts)
def test_a_text_is_read_back_as_this_text(text: str) -> None:
    line = yaml_line(text)
    assert "\n" not in line
    assert parse_yaml(f"name: {line}\nothers:\n  - {yaml_line({'path': text, text: 'x'})}\n", "it") == {
        "name": text,
        "others": [{"path": text, text: "x"}],
    }


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("my-photos", "my-photos"),
        ("1e3", "'1e3'"),
        ({"kind": "images", "path": "in/date={partition}/"}, "{kind: images, path: 'in/date={partition}/'}"),
        ({"kind": "python", "kwargs": {"column": "it's: text"}}, "{kind: python, kwargs: {column: 'it''s: text'}}"),
    ],
)
def test_quotes_stand_only_where_a_text_needs_them(value: object, line: str) -> None:
    assert yaml_line(value) == line
