"""Answers in JSON: the text of an answer becomes a value that fits a JSON schema.

The Arrow type comes from the schema alone, so that it is the same in every batch. An object becomes
a struct of its `properties`, an array a list. Null beside one type (`anyOf`, a list of types)
changes nothing, and `enum` and `const` have the type of their values. Values without one such type
(an object without properties, a union) stay JSON text, and dates stay text.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from jsonschema import ValidationError
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.answer import Answer, Choice

FENCED = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.DOTALL)
JSON_STARTS = ("{", "[", '"', "```")
ALTERNATIVES = ("anyOf", "oneOf", "allOf")
NO_TYPE = {*ALTERNATIVES, "enum", "const"}
KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}  # of JSON's values
PLAIN = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


class AnswerSchema:
    """The JSON schema of answers, and `type`, the Arrow type of values that fit it.

    `has_alternatives` is True if anyOf, enum or the like determines a part of the type.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        """Raise `ValueError` if `schema` is not a JSON schema, or refers to another document."""
        kind = validator_for(schema)
        resource: Resource[Any] = Resource.from_contents(schema, default_specification=DRAFT202012)
        resolver = Registry().with_resource("", resource).resolver()
        try:
            kind.check_schema(schema)
            targets = {name: resolver.lookup(name).contents for name in _references(schema)}
        except (SchemaError, Unresolvable) as error:
            reason = error.message if isinstance(error, SchemaError) else f"found no target of $ref {error.ref!r}"
            raise ValueError(f"expected a JSON schema, found an invalid one: {reason}") from None
        # Without a registry, a $ref to another document would be fetched.
        self._validator = kind(schema, registry=Registry())
        self.type = _arrow_type(schema, targets)
        named_types = {name: _without_alternatives(target) for name, target in targets.items()}
        self.has_alternatives = self.type != _arrow_type(_without_alternatives(schema), named_types)

    def values(self, answer: Answer) -> list[Any]:
        """Return the value of each text. Raise `RowError` if one does not fit, with the tokens."""
        values: list[Any] = []
        for choice in answer.choices:
            try:
                values.append(self.value_of(choice))
            except RowError as error:
                message = str(error)
                if choice.finish_reason == "length":
                    message += " It ends at max_new_tokens."
                if answer.others:
                    message += f" It is text {len(values) + 1} of {len(answer.choices)}."
                raise RowError(message + answer.usage) from None
        return values

    def value_of(self, choice: Choice) -> Any:
        """Return the value of a text, which may have reasoning before its JSON. Raise `RowError` if it does not fit."""
        return self.value(_json_text(choice))

    def value(self, text: str) -> Any:
        """Parse a text and return its value. A `RowError` names the place that does not fit."""
        try:
            return self._checked(_parsed(text))
        except RecursionError:
            reason = "JSON that is nested too deeply"
        except (pa.ArrowException, UnicodeError, OverflowError) as error:
            reason = f"a value that does not fit a column of {self.type}: {error}"
        except ValueError as error:
            reason = str(error)
        raise RowError(f"answer: expected JSON that fits output_schema, found {reason}. It begins with {text[:80]!r}.")

    def _checked(self, value: Any) -> Any:
        problem = best_match(self._validator.iter_errors(value))
        if problem is not None:
            raise ValueError(_message(problem))
        plain = _plain(value, self.type)
        pa.array([plain], self.type)
        return plain


def _json_text(choice: Choice) -> str:
    """Return the JSON of a text: all of it, or what follows the reasoning."""
    if choice.text is not None and choice.text.lstrip().startswith(JSON_STARTS):
        return choice.text
    answer = choice.parts().answer
    if answer is None:
        raise RowError("answer: expected JSON that fits output_schema, found reasoning that does not end.")
    return answer


def _parsed(text: str) -> Any:
    if fence := FENCED.fullmatch(text.strip()):
        text = fence.group(1)
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise ValueError(f"a text that is not JSON ({error})") from None


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _arrow_type(schema: Any, targets: Mapping[str, Any], path: tuple[str, ...] = ()) -> pa.DataType:
    """Return the type of values that fit `schema`. `targets`: the schema of each $ref; `path`: the open $refs."""
    if not isinstance(schema, dict):
        return pa.string()
    if reference := schema.get("$ref"):
        if reference in path:
            return pa.string()  # the type of a recursive schema would have no end
        return _arrow_type(targets[reference], targets, (*path, reference))
    kind = _kind(schema)
    if kind is None:
        keyword = next((name for name in ALTERNATIVES if name in schema), None)
        return _common_type(schema[keyword] if keyword else [], targets, path)
    if kind == "object" and schema.get("properties"):
        properties = schema["properties"].items()
        return pa.struct([(name, _arrow_type(inner, targets, path)) for name, inner in properties])
    if kind == "array" and "items" in schema:
        return pa.list_(_arrow_type(schema["items"], targets, path))
    return PLAIN.get(kind, pa.string())


def _common_type(schemas: Sequence[Any], targets: Mapping[str, Any], path: tuple[str, ...]) -> pa.DataType:
    """Return the type of all alternatives but null: pydantic writes `Optional[int]` as one of integer and null."""
    kinds = {_arrow_type(schema, targets, path) for schema in schemas if not _is_null(schema)}
    if kinds == {pa.int64(), pa.float64()}:
        return pa.float64()
    return kinds.pop() if len(kinds) == 1 else pa.string()


def _without_alternatives(schema: Any) -> Any:
    if isinstance(schema, list):
        return list(map(_without_alternatives, schema))
    if not isinstance(schema, dict):
        return schema
    return {name: _without_alternatives(inner) for name, inner in schema.items() if name not in NO_TYPE}


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (schema.get("type") in ("null", ["null"]) or schema.get("const", 0) is None)


def _kind(schema: Mapping[str, Any]) -> str | None:
    """Return the only type of values that fit, besides null: the `type`, or that of the values of enum and const."""
    if "type" in schema:
        kind = schema["type"]
        kinds = set(kind if isinstance(kind, list) else [kind])
    else:
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        kinds = {KINDS.get(type(value), "object") for value in values}
        if "number" in kinds:
            kinds.discard("integer")
    kinds.discard("null")
    return kinds.pop() if len(kinds) == 1 else None


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Return `value` in the form of the Arrow type `kind`, without keys outside the schema."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _plain(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_plain(element, kind.value_type) for element in value]
    if pa.types.is_string(kind) and not isinstance(value, str):
        return json.dumps(value)
    if pa.types.is_integer(kind):
        return int(value)  # for JSON schema 3.0 is an integer
    if pa.types.is_floating(kind):
        return float(value)  # 3 and 3.0 are one value of a majority
    return value


def _message(problem: ValidationError) -> str:
    path = problem.json_path.removeprefix("$").removeprefix(".")
    return f"{path}: {problem.message[:300]}" if path else problem.message[:300]


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference
        schema = list(schema.values())
    if isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)
