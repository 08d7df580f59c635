"""Answers that fit a JSON schema become values of one type, and others say why they do not."""

import datetime
import enum
import json
from typing import Annotated, Any, Generic, Literal, TypeVar

import pyarrow as pa
import pydantic
import pytest
from pydantic import BaseModel

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.structured_output import AnswerSchema
from overnight.tasks.infer.models.openai import OpenAI

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
    kinds = {"mood": pa.string(), "stars": pa.int64(), "score": pa.float64(), "tags": pa.list_(pa.string())}
    kinds |= {"who": pa.struct([("name", pa.string())]), "rest": pa.string()}
    assert schema.type == pa.struct(list(kinds.items()))
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
        ("The mood is good.", "a text that is not JSON .*It begins with 'The mood is good.'"),
        ('{"mood": "good", "stars": 3} I hope this helps!', "a text that is not JSON"),
        ('{"mood": "odd", "stars": 3}', r"mood: 'odd' is not one of \['good', 'bad'\]"),
        ('{"mood": "good"}', "'stars' is a required property"),
        ('{"mood": "good", "stars": 3, "score": NaN}', "NaN is not a JSON number"),
        ('{"mood": "good", "stars": 99999999999999999999}', "a value that does not fit a column of"),
        ('{"mood": "good", "stars": 3, "tags": ["\\ud800"]}', "a value that does not fit a column of"),
        ('{"mood": "good", "stars": 3, "tags": ["a", 7]}', r"tags\[1\]: 7 is not of type 'string'"),
        ("[" * 100_000, "JSON that is nested too deeply"),
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
    tree = {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#"}}}
    schema = AnswerSchema(tree)
    assert schema.value('{"name": "a", "next": {"name": "b", "next": {"name": "c"}}}')["name"] == "a"


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Author(BaseModel):
    born: int | None = None


T = TypeVar("T")


class Box(BaseModel, Generic[T]):
    content: T


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]
    is_loud: bool


class Tree(BaseModel):
    value: int
    next: list["Tree"] = []


INTEGER, TEXT = pa.int64(), pa.string()
TREE = pa.struct([("value", INTEGER), ("next", pa.list_(TEXT))])
AUTHOR = pa.struct([("born", INTEGER)])


@pytest.mark.parametrize(
    ("annotation", "kind", "value", "expected"),
    [
        (int | None, INTEGER, 1999, 1999),
        (int | None, INTEGER, None, None),
        (Author, AUTHOR, {"born": None}, {"born": None}),
        (list[Author | None] | None, pa.list_(AUTHOR), [None, {"born": 1}], [None, {"born": 1}]),
        (Mood | None, TEXT, "good", "good"),
        (enum.IntEnum("Stars", ["ONE", "TWO"]), INTEGER, 2, 2),
        (Literal["a", None], TEXT, "a", "a"),
        (Literal[True], pa.bool_(), True, True),
        (Literal["a", 1], TEXT, 1, "1"),
        (Literal[1, 2.5, None], pa.float64(), 1, 1.0),
        (Box[Author | None], pa.struct([("content", AUTHOR)]), {"content": None}, {"content": None}),
        (Annotated[Author, pydantic.Field(description="of the book")], AUTHOR, {"born": 1}, {"born": 1}),
        (Annotated[Cat | Dog, pydantic.Field(discriminator="kind")], TEXT, {"kind": "cat"}, '{"kind": "cat"}'),
        (list[Mood | None], pa.list_(TEXT), ["good", None], ["good", None]),
        (Tree, TREE, {"value": 1, "next": [{"value": 2}]}, {"value": 1, "next": ['{"value": 2}']}),
        (bool | None, pa.bool_(), False, False),
        (int | float, pa.float64(), 2, 2.0),
        (int | str, TEXT, 5, "5"),
        (dict[str, int] | None, TEXT, {"a": 1}, '{"a": 1}'),
        (datetime.date | None, TEXT, "2024-02-29", "2024-02-29"),
        (tuple[int, str], TEXT, [1, "a"], '[1, "a"]'),
        (Any, TEXT, {"a": [1]}, '{"a": [1]}'),
    ],
)
def test_a_schema_that_pydantic_writes_gives_the_type_of_its_annotation(
    annotation: Any, kind: pa.DataType, value: Any, expected: Any
) -> None:
    model = pydantic.create_model("Answer", x=(annotation, ...))
    schema = AnswerSchema(model.model_json_schema())
    assert schema.type == pa.struct([("x", kind)])
    assert schema.value(json.dumps({"x": value})) == {"x": expected}


def test_a_keyword_without_letters_gives_no_type() -> None:
    assert AnswerSchema({"": 1}).type == pa.string()


def test_an_alternative_that_names_no_type_leaves_the_type() -> None:
    schema = AnswerSchema({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]})
    assert schema.type == pa.struct([("a", TEXT)])


@pytest.mark.parametrize(("field", "is_changed"), [({"type": "integer"}, False), ({"enum": [1, 2]}, True)])
def test_only_a_job_whose_columns_are_typed_anew_has_another_fingerprint(field: Any, is_changed: bool) -> None:
    schema = {"type": "object", "properties": {"x": field}}
    settings = OpenAI(model="m", user="{text}", output_schema=schema).content_settings()
    assert settings.pop("answer_types", None) == ("alternatives" if is_changed else None)
    assert settings == {"kind": "openai", "model": "m", "user": "{text}", "output_schema": schema}


def test_equal_numbers_are_written_alike_so_that_a_majority_counts_them_together() -> None:
    assert repr(AnswerSchema({"type": "number"}).value("3")) == "3.0"
