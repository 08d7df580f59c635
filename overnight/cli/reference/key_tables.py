"""Tables of the keys of a job file as Markdown, from their JSON schema. A key without a description raises an error."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

UNITS = {2**30: "GiB", 2**20: "MiB"}
# A space that does not break keeps the number on its line.
RANGES = {
    "exclusiveMinimum": ">\N{NO-BREAK SPACE}{}",
    "minimum": "≥\N{NO-BREAK SPACE}{}",
    "exclusiveMaximum": "<\N{NO-BREAK SPACE}{}",
    "maximum": "≤\N{NO-BREAK SPACE}{}",
}
HEADER = ["| key | type; default | description |", "| --- | --- | --- |"]


class OwnKey(NamedTuple):
    """A key of a mapping, with its JSON schema."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool


def own_keys(schema: Mapping[str, Any]) -> list[OwnKey]:
    names = schema.get("required", [])
    keys = schema.get("properties", {}).items()
    return [OwnKey(name, key, name in names) for name, key in keys if name != "kind"]


def table(keys: Iterable[OwnKey], defs: Mapping[str, Any]) -> Iterator[str]:
    rows = [row(*key, defs) for key in keys]
    if rows:
        yield from [*HEADER, *rows, ""]


def table_of(schema: Mapping[str, Any]) -> Iterator[str]:
    return table(own_keys(schema), schema.get("$defs", {}))


def nested_mappings(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: inner for name, inner in schema.get("$defs", {}).items() if inner.get("properties")}


def nested_tables(nested: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in nested.items():
        yield from [f"## The mapping {name}", "", one_line(schema.get("description", "")), ""]
        yield from table(own_keys(schema), nested)


def row(name: str, schema: Mapping[str, Any], is_required: bool, defs: Mapping[str, Any]) -> str:
    words = schema.get("description")
    if not words:
        raise ValueError(f"expected a description of every key of a job file, found none of {name}: {schema}")
    if schema.get("examples"):
        words += " Example: " + ", ".join(f"`{yaml_text(example)}`" for example in schema["examples"])
    default = "**required**" if is_required else default_words(schema.get("default"))
    return f"| `{name}` | {type_words(schema, defs)}; {default} | {one_line(words)} |"


def default_words(default: Any) -> str:
    if default is None:
        return "optional"
    if default in ([], {}, ""):
        return "empty"
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    for size, unit in UNITS.items():
        if type(default) is int and default and default % size == 0:
            return f"`{default}` ({default // size} {unit})"
    return f"`{yaml_text(default)}`"


def yaml_text(value: Any) -> str:
    # JSON is YAML too.
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def type_words(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        target = defs.get(name, {})
        return f"[mapping](#the-mapping-{name.lower()})" if target.get("properties") else type_words(target, defs)
    if "allOf" in schema:
        return type_words(schema["allOf"][0], defs)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            types = [type_words(choice, defs) for choice in schema[several] if choice.get("type") != "null"]
            return " or ".join(dict.fromkeys(types))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return "pair of " + _plural(type_words(schema["prefixItems"][0], defs))
        return "list of " + _plural(type_words(schema.get("items", {}), defs))
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return "mapping to " + _plural(type_words(inner, defs)) if isinstance(inner, dict) and inner else "mapping"
    bounds = [words.format(schema[key]) for key, words in RANGES.items() if key in schema]
    name = {"string": "text", "number": "number", "integer": "integer", "boolean": "true or false"}.get(
        schema.get("type", ""), "anything"
    )
    return " ".join([name, ", ".join(bounds)]).strip()


def _plural(name: str) -> str:
    word, _, bounds = name.partition(" ")
    plural = {"text": "texts", "integer": "integers", "number": "numbers", "mapping": "mappings"}.get(word, word)
    return f"{plural} {bounds}".strip()


def first_paragraph(leaf: type) -> str:
    return one_line((leaf.__doc__ or "").split("\n\n")[0])


def one_line(text: str) -> str:
    """Return a text as one line for a cell, in which characters of Markdown are plain text."""
    line = " ".join(text.split()).replace("|", "\\|")  # a bar would end the cell, also in code
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if part.startswith("`") else _literal(part) for part in parts)


def _literal(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*")
