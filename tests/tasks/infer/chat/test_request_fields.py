"""The fields that each family of servers has, and the form of strict schemas."""

from typing import Any

import pytest
from pydantic import ValidationError

from overnight.tasks.infer.models.openai import OpenAI

SETTINGS: dict[str, Any] = {"model": "m", "user": "Hi", "max_new_tokens": 9, "seed": 3}


@pytest.mark.parametrize(
    ("dialect", "reasoning", "fields"),
    [
        ("any", {"effort": "low"}, {"max_tokens": 9, "seed": 3, "reasoning_effort": "low"}),
        ("openai", {"effort": "low"}, {"max_completion_tokens": 9, "seed": 3, "reasoning_effort": "low"}),
        ("mistral", True, {"max_tokens": 9, "random_seed": 3}),
        ("openrouter", {"effort": "low"}, {"max_tokens": 9, "seed": 3, "reasoning": {"effort": "low"}}),
        ("openrouter", {"budget_tokens": 5}, {"max_tokens": 9, "seed": 3, "reasoning": {"max_tokens": 5}}),
        ("vllm", {"budget_tokens": 5}, {"max_tokens": 9, "seed": 3, "thinking_token_budget": 5}),
    ],
)
def test_a_dialect_has_the_fields_of_its_servers(dialect: str, reasoning: Any, fields: dict[str, Any]) -> None:
    settings = {"dialect": dialect, "reasoning": reasoning}
    body = OpenAI(**SETTINGS, **settings).body([])  # type: ignore[arg-type]
    assert body == {"model": "m", "messages": [], "temperature": 0, **fields}


@pytest.mark.parametrize("dialect", ["openrouter", "vllm"])
def test_a_test_request_of_one_token_has_no_budget_of_reasoning(dialect: str) -> None:
    model = OpenAI(**SETTINGS, dialect=dialect, reasoning={"budget_tokens": 5})  # type: ignore[arg-type]
    short = model.protocol().test_body(model.body([]))
    assert short.keys() == {"model", "messages", "max_tokens", "temperature", "seed"}


@pytest.mark.parametrize(
    "user", ["{a}" + "x" * 1000, [{"text": "{a}"}, {"text": "x" * 1000}], [{"image": "a"}, {"text": "x" * 1000}]]
)
def test_fixed_text_behind_a_column_is_remarked_also_in_parts(user: Any) -> None:
    [remark] = OpenAI(model="m", user=user).remarks()
    assert "1,000 characters of fixed text come behind the first column" in remark
    assert not OpenAI(model="m", user=user[::-1] if isinstance(user, list) else "x" * 1000 + "{a}").remarks()


@pytest.mark.parametrize("form", [{"choice": ["a", "b"]}, {"regex": "a+"}, {"grammar": 'start: "a"'}])
def test_vllm_gets_the_form_of_an_answer_also_behind_an_address(form: dict[str, Any]) -> None:
    answer = {name.replace("choice", "choices"): value for name, value in form.items()}
    body = OpenAI(**SETTINGS, dialect="vllm", answer=answer).body([])
    assert body["structured_outputs"] == form
    assert "response_format" not in body


ITEM = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (ITEM, None),
        ({**ITEM, "properties": {"a": {"$ref": "#/$defs/item"}}, "$defs": {"item": ITEM}}, None),
        ({"type": "array", "items": ITEM}, "output_schema: expected an object at the top"),
        ({**ITEM, "required": []}, "output_schema: expected all properties in required, found none of a"),
        ({**ITEM, "additionalProperties": True}, "output_schema: expected additionalProperties: false"),
        ({**ITEM, "properties": {"a": {"items": {"type": "object"}}}}, "output_schema.a.items: expected additional"),
        ({**ITEM, "properties": {"a": {"anyOf": [{"type": "object"}]}}}, "output_schema.a: expected additional"),
        ({**ITEM, "$defs": {"item": {"type": "object"}}}, "output_schema.item: expected additional"),
    ],
)
def test_a_strict_schema_has_all_properties_and_no_others(schema: dict[str, Any], words: str | None) -> None:
    settings = {**SETTINGS, "output_schema": schema}
    assert "strict" not in OpenAI(**settings).body([])["response_format"]["json_schema"]
    if words is None:
        assert OpenAI(**settings, dialect="openai").body([])["response_format"]["json_schema"]["strict"] is True
    else:
        with pytest.raises(ValidationError, match=words):
            OpenAI(**settings, dialect="openai")
