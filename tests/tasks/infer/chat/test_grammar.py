"""Grammars: which texts they have, and which schemas are refused."""

import json
import time
from typing import Any

import pytest

from overnight.tasks.infer.chat.grammar import Grammar, of_choices, of_lark, of_regex, of_schema
from overnight.tasks.infer.models.chat import Chat

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}


def fits(grammar: Grammar, *texts: str) -> list[bool]:
    assert grammar.problem == ""
    return list(map(grammar.fits, texts))


def test_a_text_fits_as_a_whole() -> None:
    assert fits(of_choices(['a"b\\', "/ü{}\n"]), 'a"b\\', "/ü{}\n", 'a"b', "", 'a"b\\ ') == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert fits(of_lark('start: "yes" | WORD\nWORD: /n[a-z]/'), "yes", "no", "nope") == [True, True, False]


@pytest.mark.parametrize(
    ("pattern", "text"), [("a/b", "a/b"), (r"a\/b", "a/b"), (r"\\/", "\\/"), ("[/\n]+", "/\n/"), (r"\d{2}|x", "x")]
)
def test_a_regular_expression_may_have_slashes_and_lines(pattern: str, text: str) -> None:
    assert fits(of_regex(pattern), text, text + "!") == [True, False]


def test_a_regular_expression_takes_no_longer_for_a_text_that_nearly_fits() -> None:
    start = time.monotonic()
    assert fits(of_regex("(a+)+b"), "a" * 5000) == [False]
    assert time.monotonic() < start + 5


def test_json_of_a_schema_has_one_spacing_and_no_property_that_no_column_keeps() -> None:
    texts = ['{"a": 1}', '{"a": 1, "b": "x"}', '{"a":1}', '{"a": 1, "c": 2}', '{"b": "x"}', '{"a": 1.5}']
    assert fits(of_schema(OBJECT), *texts) == [True, True, False, False, False, False]


def test_an_integer_of_a_schema_fits_a_column() -> None:
    digits = "9" * 18
    texts = [f'{{"a": {digits}}}', f'{{"a": -{digits}}}', f'{{"a": {digits}9}}']
    assert fits(of_schema(OBJECT), *texts) == [True, True, False]
    assert fits(of_schema({"type": ["integer", "null"], "minimum": 3}), "3", "2", "null", digits + "9") == [
        *(True, False, True, False),
    ]
    assert fits(of_schema({"enum": [{"type": "integer"}]}), '{"type": "integer"}') == [True]


def test_the_parts_of_all_of_have_properties_of_each_other() -> None:
    parts = [{"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]} for name in "ab"]
    assert fits(of_schema({"allOf": parts}), '{"a": 1, "b": 2}') == [True]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
        ({"type": "string", "format": "color"}, "color"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"not": {"type": "string"}}, "not"),
        ({"type": "string", "pattern": "a(?=b)"}, "look-around"),
    ],
)
def test_a_schema_that_cannot_be_held_is_refused_with_the_job(field: dict[str, Any], reason: str) -> None:
    schema = {"type": "object", "properties": {"x": field}}
    Chat(model="m", user="{text}", output_schema=schema)
    with pytest.raises(ValueError, match=rf"constrain: expected an output_schema that llguidance supports, .*{reason}"):
        Chat(model="m", user="{text}", output_schema=schema, constrain=True)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"constrain": True}, "constrain: expected an output_schema"),
        ({"constrain": True, "output_schema": OBJECT, "reasoning": True}, "reasoning: a model that constrain limits"),
        ({"answer": {"choices": ["a"]}, "reasoning": True}, "reasoning: a model that answer.choices limits"),
    ],
)
def test_a_grammar_without_a_schema_or_beside_reasoning_is_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Chat(model="m", user="{text}", **settings)


def test_new_settings_at_their_defaults_change_no_fingerprint() -> None:
    settings = {"constrain": False, "answer": None, "keep": "all", "logprobs": False, "label_scores": False}
    plain = Chat(model="m", user="{text}").content_settings()
    assert Chat(model="m", user="{text}", **settings).content_settings() == plain
    changed = Chat(model="m", user="{text}", answer={"choices": ["a", "b"]}).content_settings()
    assert json.loads(json.dumps(changed)) == {**plain, "answer": {"choices": ["a", "b"]}}


@pytest.mark.parametrize("name", ["default", "enum", "a"])
def test_a_property_with_the_name_of_a_keyword_has_bounds_too(name: str) -> None:
    grammar = of_schema({"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]})
    assert fits(grammar, f'{{"{name}": 7}}', f'{{"{name}": {10**19}}}') == [True, False]
