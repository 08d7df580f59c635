"""Explain the problems of a job file, one line each: the key, the expected value and the found value.

The texts come from the JSON schema of the job, so that a new leaf needs no code here.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from overnight.tasks.errors import did_you_mean

Schema = Mapping[str, Any]


def explain(error: ValidationError, data: Any, schema: Schema) -> list[str]:
    """Return a line for each problem that pydantic found: the key, the expected value, and the value that was found.

    `data` is the job's mapping, and `schema` is its JSON schema, as `job_schema` returns it.
    """
    lines = []
    for problem in error.errors(include_url=False):
        place = _Place(schema, data)
        for part in problem["loc"]:
            place.enter(part)
        lines.append(_line(problem, place))
    return list(dict.fromkeys(lines))


class _Place:
    """A place in a job file: its path, the schema there and the value there."""

    def __init__(self, schema: Schema, data: Any) -> None:
        self.root, self.node, self.value = schema, schema, data
        self.path: list[str] = []
        self._skip_tag = self.in_alternative = False
        self.parent: Schema = schema

    def enter(self, part: str | int) -> None:
        """Go one step along the location of a pydantic error, which also contains the tags of unions."""
        if self.in_alternative:
            return
        if self._skip_tag:
            self._skip_tag = False
            return
        children = _children(self.node, part)
        if children is None and not isinstance(part, int) and "properties" not in self.node:
            self.in_alternative = True  # the location names an alternative of a union; the problem is the field itself
            return
        self.parent = self.node
        self.path.append(str(part))
        self.value = _item(self.value, part)
        self.node = self._resolved(children or {})

    def _resolved(self, node: Schema) -> Schema:
        node = _plain(node, self.root)
        mapping = node.get("discriminator", {}).get("mapping", {})
        if isinstance(self.value, dict) and self.value.get("kind") in mapping:
            self._skip_tag = True
            return _plain({"$ref": mapping[self.value["kind"]]}, self.root)
        return node

    def __str__(self) -> str:
        return ".".join(self.path) or "the job file"

    def kinds(self) -> list[str]:
        return list(self.node.get("discriminator", {}).get("mapping", {}))


def _line(problem: Mapping[str, Any], place: _Place) -> str:
    kind = problem["type"]
    if kind == "missing" and not place.in_alternative:
        return f"{place}: is missing; expected {_expected(place.node, place.root)}"
    if kind == "extra_forbidden":
        known = place.parent.get("properties", {})
        for name, node in known.items():
            if _plain(node, place.root).get("formerly") == place.path[-1]:
                return f"{place}: is called {name} now; expected {_expected(node, place.root)}"
        section = ".".join(place.path[:-1]) or "the job file"
        close = did_you_mean(place.path[-1], known)
        return f"{place}: unknown key{close}; the keys of {section} are {', '.join(known)}"
    if kind == "union_tag_not_found":
        kinds = place.kinds()
        given = [key for key in place.value if key in kinds] if isinstance(place.value, dict) else []
        example = f" (write {{kind: {given[0]}, ...}})" if given else ""
        return f"{place}.kind: is missing{example}; expected one of {', '.join(kinds)}"
    if kind == "union_tag_invalid":
        found = place.value.get("kind") if isinstance(place.value, dict) else place.value
        known = place.kinds()
        close = did_you_mean(str(found), known)
        return f"{place}.kind: expected one of {', '.join(known)}, found {_shown(found)}{close}"
    if kind in ("value_error", "assertion_error"):
        return f"{place}: {problem['ctx']['error']}" if place.path else str(problem["ctx"]["error"])
    return f"{place}: expected {_expected(place.node, place.root)}, found {_shown(place.value)}"


def _expected(node: Schema, root: Schema) -> str:
    node = _plain(node, root)
    if "const" in node:
        return str(node["const"])
    if "enum" in node:
        return f"one of {', '.join(map(str, node['enum']))}"
    for several in ("anyOf", "oneOf"):
        if several in node:
            kinds = list(node.get("discriminator", {}).get("mapping", {}))
            if kinds:
                return f"a mapping with kind: one of {', '.join(kinds)}"
            choices = [choice for choice in node[several] if choice.get("type") != "null"]
            return " or ".join(dict.fromkeys(_expected(choice, root) for choice in choices))
    match node.get("type"):
        case "string":
            return _text(node)
        case "integer" | "number" as kind:
            return ("a whole number" if kind == "integer" else "a number") + _bounds(node)
        case "boolean":
            return "true or false"
        case "array" if "prefixItems" in node:
            return f"a list of {' and '.join(_expected(item, root) for item in node['prefixItems'])}"
        case "array":
            return "a list that is not empty" if node.get("minItems") else "a list"
        case "object":
            return "a mapping that is not empty" if node.get("minProperties") else "a mapping"
    return "a value"


def _text(node: Schema) -> str:
    if "examples" in node:
        description = node.get("description", "").rstrip(".")
        return f"text like {node['examples'][0]}" + (f" ({description})" if description else "")
    if "pattern" in node:
        return f"text that matches {node['pattern']}"
    return "text" if "minLength" not in node else "text that is not empty"


def _bounds(node: Schema) -> str:
    words = {
        "minimum": "of at least",
        "exclusiveMinimum": "above",
        "maximum": "of at most",
        "exclusiveMaximum": "below",
    }
    if "minimum" in node and "maximum" in node:
        return f" from {node['minimum']:g} to {node['maximum']:g}"
    return "".join(f" {word} {node[key]:g}" for key, word in words.items() if key in node)


def _plain(node: Schema, root: Schema) -> Schema:
    """Return the node after following references, and the only choice of an optional field's `anyOf`."""
    while True:
        if "$ref" in node:
            node = {**root["$defs"][re.sub(r".*/", "", node["$ref"])], **{k: v for k, v in node.items() if k != "$ref"}}
            continue
        choices = [choice for choice in node.get("anyOf", []) if choice.get("type") != "null"]
        if len(choices) == 1:
            node = {**{k: v for k, v in node.items() if k != "anyOf"}, **choices[0]}
            continue
        return node


def _children(node: Schema, part: str | int) -> Schema | None:
    if "properties" in node:
        found: Schema | None = node["properties"].get(part)
        return found
    if isinstance(part, int):
        items = node.get("items")
        return items if isinstance(items, Mapping) else None
    extra = node.get("additionalProperties")
    return extra if isinstance(extra, Mapping) else None


def _item(value: Any, part: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(part)
    if isinstance(value, Sequence) and not isinstance(value, str) and isinstance(part, int) and part < len(value):
        return value[part]
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
