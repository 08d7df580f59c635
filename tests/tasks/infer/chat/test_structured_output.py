"""Answers that fit a JSON schema become values of one type; ten that do not, each say why."""

from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.structured_output import AnswerSchema

REVIEW: dict[str, Any] = {
    "type": "object",
    "properties": {
        "mood": {"type": "string", "enum": ["good", "bad"]},
        "stars": {"type": "integer", "minimum": 1},
        "score": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "who": {"$ref": "#/$defs/who"},
        "rest": {"type": "object"},
    },
    "required": ["mood", "stars"],
    "$defs": {"who": {"type": "object", "properties": {"name": {"type": "string"}}}},
}


def test_an_answer_becomes_a_value_of_the_schemas_type() -> None:
    schema = AnswerSchema(REVIEW)
    assert schema.type == pa.struct(
        [
            ("mood", pa.string()),
            ("stars", pa.int64()),
            ("score", pa.float64()),
            ("tags", pa.list_(pa.string())),
            ("who", pa.struct([("name", pa.string())])),
            ("rest", pa.string()),
        ]
    )
    text = '{"mood": "good", "stars": 3.0, "score": 1, "tags": ["a"], "who": {"name": "b", "x": 1}, "rest": {"y": [1]}}'
    value = {
        "mood": "good", "stars": 3, "score": 1, "tags": ["a"], "who": {"name": "b"}, "rest": '{"y": [1]}',
    }  # fmt: skip
    assert schema.value(text) == value
    assert schema.value(f"\n```json\n{text}\n```\n") == value
    less = {"mood": "bad", "stars": 1, "score": None, "tags": None, "who": None, "rest": None}
    assert schema.value('{"mood": "bad", "stars": 1, "score": null}') == less


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "a text that is not JSON"),
        ("The mood is good.", "a text that is not JSON .*It begins with 'The mood is good.'"),
        ('{"mood": "good", "stars": 3', "a text that is not JSON"),
        ('{"mood": "good", "stars": 3} I hope this helps!', "a text that is not JSON"),
        ('{"mood": "odd", "stars": 3}', r"mood: 'odd' is not one of \['good', 'bad'\]"),
        ('{"mood": "good"}', "'stars' is a required property"),
        ('{"mood": "good", "stars": "3"}', "stars: '3' is not of type 'integer'"),
        ('{"mood": "good", "stars": 3, "score": NaN}', "NaN is not a JSON number"),
        ('{"mood": "good", "stars": 99999999999999999999}', "a value that does not fit a column of"),
        ('{"mood": "good", "stars": 3, "tags": ["\\ud800"]}', "a value that does not fit a column of"),
        ('{"mood": "good", "stars": 3, "tags": ["a", 7]}', r"tags\[1\]: 7 is not of type 'string'"),
        ("[" * 100_000, "JSON that is nested too deeply"),
        ('[{"mood": "good", "stars": 3}]', "is not of type 'object'"),
    ],
)
def test_an_answer_that_does_not_fit_says_where(answer: str, why: str) -> None:
    with pytest.raises(RowError, match=rf"answer: expected JSON that fits output_schema, found .*{why}"):
        AnswerSchema(REVIEW).value(answer)


@pytest.mark.parametrize(
    "schema",
    [{"type": "text"}, {"$ref": "#/$defs/nowhere"}, {"items": {"$ref": "http://127.0.0.1:9/schema.json"}}],
)
def test_a_schema_that_is_none_or_lies_elsewhere_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected a JSON schema, found an invalid one"):
        AnswerSchema(schema)


def test_a_schema_that_holds_itself_is_text_where_it_would_go_on_for_ever() -> None:
    tree = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "next": {"$ref": "#"}},
    }
    schema = AnswerSchema(tree)
    assert schema.value('{"name": "a", "next": {"name": "b", "next": {"name": "c"}}}')["name"] == "a"
