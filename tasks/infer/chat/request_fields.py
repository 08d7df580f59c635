"""The fields of a chat completion's request, by the family of the server: the table of `dialect`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RequestFields:
    """The names of fields, or None. `a.b` is the field `b` in the object `a`."""

    limit: str = "max_tokens"
    seed: str = "seed"
    is_strict: bool = False  # the server promises answers that fit a schema of a strict form
    effort: str = "reasoning_effort"
    budget: str | None = None
    has_forms: bool = False  # structured_outputs, for answers that are not JSON
    key_header: str = "Authorization"


FAMILIES = {
    "any": RequestFields(),  # what nearly all servers take
    "openai": RequestFields(limit="max_completion_tokens", is_strict=True),  # and Azure; both refuse max_tokens
    "mistral": RequestFields(seed="random_seed"),
    "openrouter": RequestFields(effort="reasoning.effort", budget="reasoning.max_tokens"),
    "vllm": RequestFields(budget="thinking_token_budget", has_forms=True),
    "anthropic": RequestFields(effort="output_config.effort", budget="thinking.budget_tokens", key_header="x-api-key"),
    "gemini": RequestFields(
        limit="maxOutputTokens",
        effort="thinkingConfig.thinkingLevel",
        budget="thinkingConfig.thinkingBudget",
        key_header="x-goog-api-key",
    ),
}


def put(body: dict[str, Any], field: str, value: Any) -> None:
    """Set a field of a request, which may be in an object."""
    name, _, inner = field.partition(".")
    if inner:
        body[name] = {**body.get(name, {}), inner: value}
    else:
        body[name] = value


def strict_problem(schema: Any) -> str | None:
    """Return why a strict server would refuse a schema; None if it would not."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "output_schema: expected an object at the top"
    for path, inner in _objects(schema, "output_schema"):
        properties = inner.get("properties", {})
        if missing := sorted({*properties} - {*inner.get("required", ())}):
            return f"{path}: expected all properties in required, found none of {', '.join(missing)}"
        if inner.get("additionalProperties") is not False:
            return f"{path}: expected additionalProperties: false"
    return None


def _objects(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schemas of objects in a schema, each with its path."""
    if isinstance(schema, dict):
        if "properties" in schema or schema.get("type") == "object":
            yield path, schema
        for name in ("properties", "$defs", "definitions"):
            for key, inner in schema.get(name, {}).items():
                yield from _objects(inner, f"{path}.{key}")
        yield from _objects(schema.get("items"), f"{path}.items")
        for inner in schema.get("anyOf", ()):
            yield from _objects(inner, path)
