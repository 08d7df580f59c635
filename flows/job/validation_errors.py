"""Explain the problems of a job file, one line each: the key, the expected value and the found value.

The texts come from the JSON schema of the job, so that a new leaf needs no code here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from overnight.flows.job.yaml_loader import value_at
from overnight.tasks.errors import did_you_mean

Schema = Mapping[str, Any]
NOT_EMPTY = " that is not empty"
BOUNDS = {
    "minimum": "of at least",
    "exclusiveMinimum": "above",
    "maximum": "of at most",
    "exclusiveMaximum": "below",
}


def explain(error: ValidationError, data: Any, schema: Schema) -> list[str]:
    """Return a line for each problem that pydantic found: the key, the expected value, and the value that was found."""
    lines: dict[str, _Place] = {}
    for problem in error.errors(include_url=False):
        position = _Place(schema, data)
        for part in problem["loc"]:
            position.enter(part)
        lines.setdefault(_line(problem, position), position)
    chosen = {tuple(position.alternative) for position in lines.values()}
    explained = []
    for line, position in lines.items():
        if not (position.in_alternative and tuple(position.path) in chosen):
            explained.append(line)
    return explained


class _Place:
    """A place in a job file: its path, the schema there and the value there."""

    def __init__(self, schema: Schema, data: Any) -> None:
        self.root, self.node, self.value = schema, schema, data
        self.path: list[str] = []
        self._skip_tag = self.in_alternative = False
        self.alternative: list[str] = []  # the path of a union whose alternative is known
        self.parent: Schema = schema

    def enter(self, part: str | int) -> None:
        """Go one step along the location of a pydantic error, which also contains the tags of unions."""
        if self.in_alternative:
            return
        if self._skip_tag:
            self._skip_tag = False
            return
        children = _children(self.node, part)
        if children is None and (alternative := self._alternative(part)):
            self.node, self.alternative = alternative, list(self.path)
            return
        if children is None and not isinstance(part, int) and "properties" not in self.node:
            self.in_alternative = True  # the location names an alternative of a union; the problem is the field itself
            return
        self.parent = self.node
        self.path.append(str(part))
        self.value = _item(self.value, part)
        self.node = self._resolved(children or {})

    def _alternative(self, tag: str | int) -> Schema | None:
        """Return the list or the mapping among a union's alternatives that `tag` names."""
        for choice in self.node.get("anyOf", ()):
            node = _plain(choice, self.root)
            is_list = node.get("type") == "array" and isinstance(self.value, list)
            if (is_list and str(tag).startswith("list[")) or (
                isinstance(self.value, dict) and node.get("title") == tag
            ):
                return node
        return None

    def _resolved(self, node: Schema) -> Schema:
        node = _plain(node, self.root)
        kinds = _kinds(node)
        if isinstance(self.value, dict) and self.value.get("kind") in kinds:
            self._skip_tag = True
            return _plain({"$ref": kinds[self.value["kind"]]}, self.root)
        return node

    def __str__(self) -> str:
        return ".".join(self.path) or "the job file"

    def kinds(self) -> list[str]:
        return list(_kinds(self.node))


def _line(problem: Mapping[str, Any], place: _Place) -> str:
    kinds = ", ".join(place.kinds())
    match problem["type"]:
        case "missing" if not place.in_alternative:
            return f"{place}: is missing; expected {_expected(place.node, place.root)}"
        case "extra_forbidden":
            return _unknown_key(place)
        case "union_tag_not_found":
            keys = [key for key in place.value if key in place.kinds()] if isinstance(place.value, dict) else []
            example = f" (write {{kind: {keys[0]}, ...}})" if keys else ""
            return f"{place}.kind: is missing{example}; expected one of {kinds}"
        case "union_tag_invalid":
            kind = place.value.get("kind") if isinstance(place.value, dict) else place.value
            close = did_you_mean(str(kind), place.kinds())
            return f"{place}.kind: expected one of {kinds}, found {_shown(kind)}{close}"
        case "value_error" | "assertion_error":
            sentence = str(problem["ctx"]["error"])
            return f"{place}: {sentence}" if place.path else sentence
    return f"{place}: expected {_expected(place.node, place.root)}, found {_shown(place.value)}"


def _unknown_key(place: _Place) -> str:
    keys, key = place.parent.get("properties", {}), place.path[-1]
    for name, node in keys.items():
        if _plain(node, place.root).get("formerly") == key:
            return f"{place}: is called {name} now; expected {_expected(node, place.root)}"
    section = ".".join(place.path[:-1]) or "the job file"
    return f"{place}: unknown key{did_you_mean(key, keys)}; the keys of {section} are {', '.join(keys)}"


def _expected(node: Schema, root: Schema) -> str:
    node = _plain(node, root)
    if "const" in node:
        return str(node["const"])
    if "enum" in node:
        return f"one of {', '.join(map(str, node['enum']))}"
    if choices := node.get("anyOf") or node.get("oneOf"):
        if kinds := _kinds(node):
            return f"a mapping with kind: one of {', '.join(kinds)}"
        return " or ".join(dict.fromkeys(_expected(choice, root) for choice in _not_null(choices)))
    match node.get("type"):
        case "string":
            return _text(node)
        case "integer":
            return f"a whole number{_bounds(node)}"
        case "number":
            return f"a number{_bounds(node)}"
        case "boolean":
            return "true or false"
        case "array" if "prefixItems" in node:
            return f"a list of {' and '.join(_expected(item, root) for item in node['prefixItems'])}"
        case "array":
            return "a list" + NOT_EMPTY * bool(node.get("minItems"))
        case "object":
            return "a mapping" + NOT_EMPTY * bool(node.get("minProperties"))
    return "a value"


def _text(node: Schema) -> str:
    if "examples" in node:
        example = f"text like {node['examples'][0]}"
        return f"{example} ({node['description'].rstrip('.')})" if node.get("description") else example
    if "pattern" in node:
        return f"text that matches {node['pattern']}"
    return "text" + NOT_EMPTY * ("minLength" in node)


def _bounds(node: Schema) -> str:
    if "minimum" in node and "maximum" in node:
        return f" from {node['minimum']:g} to {node['maximum']:g}"
    return "".join(f" {words} {node[key]:g}" for key, words in BOUNDS.items() if key in node)


def _kinds(node: Schema) -> dict[str, str]:
    """Return the kinds between which a discriminator chooses, each with the reference of its schema."""
    mapping: dict[str, str] = node.get("discriminator", {}).get("mapping", {})
    return mapping


def _not_null(choices: Sequence[Schema]) -> list[Schema]:
    return [choice for choice in choices if choice.get("type") != "null"]


def _plain(node: Schema, root: Schema) -> Schema:
    """Return the node after following references, and the only choice of an optional field's `anyOf`."""
    while True:
        other_keys, choices = dict(node), _not_null(node.get("anyOf", []))
        if "$ref" in node:
            name = other_keys.pop("$ref").rpartition("/")[2]
            node = {**root["$defs"][name], **other_keys}
        elif len(choices) == 1:
            del other_keys["anyOf"]
            node = {**other_keys, **choices[0]}
        else:
            return node


def _children(node: Schema, part: str | int) -> Schema | None:
    """Return the schema of a key or an item, or None if there is none."""
    if "properties" in node:
        child = node["properties"].get(part)
    else:
        child = node.get("items" if isinstance(part, int) else "additionalProperties")
    return child if isinstance(child, Mapping) else None


def _item(value: Any, part: str | int) -> Any:
    try:
        return None if isinstance(value, str) else value_at(value, [part])
    except (LookupError, TypeError):
        return None


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
