"""Grammars of answers in the form of llguidance: which tokens a model may write, and which texts fit.

A text is checked byte by byte, in a time that grows with its length alone, whatever the regular expression is.
"""

import importlib.util
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from overnight.tasks.config.extras import require_extra

LIBRARY = "llguidance"
LARGEST_INTEGER = 10**18 - 1  # the largest range of llguidance 1.9 within int64
# A model could write white space without an end, so an answer has these separators and no other.
SEPARATORS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
ESCAPES = re.compile(r"(\\.)|/", re.DOTALL)  # a regular expression of Lark is between slashes
VALUES = ("enum", "const", "default", "examples")  # these keywords have values, and not schemas
NAMED = ("properties", "$defs", "definitions")  # these have schemas by names, which may be those of keywords


@dataclass(frozen=True)
class Grammar:
    """A grammar; `setting` is its name for messages."""

    source: str
    setting: str

    @property
    def problem(self) -> str:
        """Return why llguidance does not accept the grammar, or an empty text. Without llguidance it is empty too."""
        if importlib.util.find_spec(LIBRARY) is None:
            return ""  # `libraries` of the model shows it
        from llguidance import LLMatcher, LLTokenizer

        reason: str = LLMatcher.validate_grammar(self.source, LLTokenizer("byte"))
        return " ".join(reason.split())[:300]

    def fits(self, text: str) -> bool:
        """Return True if the grammar has exactly this text."""
        library = require_extra(LIBRARY, f"inference: {self.setting}", "infer")
        matcher = library.LLMatcher(library.LLTokenizer("byte"), self.source)
        content = list(text.encode())
        return bool(matcher.try_consume_tokens(content) == len(content) and matcher.is_accepting())


def of_schema(schema: dict[str, Any]) -> Grammar:
    """Return the grammar of the JSON texts that fit a JSON schema and that a column can hold.

    Its integers have bounds, and its objects only the properties that the schema names: no column keeps others.
    """
    is_closed = '"allOf"' not in json.dumps(schema)  # each part of allOf would exclude the properties of the others
    document = {**_with_bounds(schema, is_closed), "x-guidance": SEPARATORS}
    return _grammar("constrain", json_schema=document)


def of_regex(pattern: str) -> Grammar:
    """Return the grammar of the texts that a regular expression matches as a whole."""
    escaped = ESCAPES.sub(lambda match: match[1] or "\\/", pattern).replace("\n", "\\n")
    return _grammar("answer.regex", lark_grammar=f"start: /{escaped}/")


def of_lark(text: str) -> Grammar:
    """Return the grammar that `text` writes in Lark's syntax, with the rule `start`."""
    return _grammar("answer.grammar", lark_grammar=text)


def of_choices(choices: Sequence[str]) -> Grammar:
    """Return the grammar that has exactly these texts."""
    return _grammar("answer.choices", lark_grammar="start: " + " | ".join(map(json.dumps, choices)))


def _grammar(setting: str, **form: Any) -> Grammar:
    return Grammar(json.dumps({"grammars": [form]}), setting)


def _with_bounds(schema: Any, is_closed: bool) -> Any:
    """Return the schema with bounds for integers that have none, and if `is_closed` without unnamed properties."""
    if isinstance(schema, list):
        return [_with_bounds(inner, is_closed) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    bounded: dict[str, Any] = {}
    for name, inner in schema.items():
        if name in NAMED and isinstance(inner, dict):
            bounded[name] = {key: _with_bounds(named, is_closed) for key, named in inner.items()}
        else:
            bounded[name] = inner if name in VALUES else _with_bounds(inner, is_closed)
    if is_closed and isinstance(schema.get("properties"), dict) and "patternProperties" not in schema:
        bounded.setdefault("additionalProperties", False)
    kind = schema.get("type")
    if kind == "integer" or (isinstance(kind, list) and "integer" in kind and "number" not in kind):
        if not {"minimum", "exclusiveMinimum"} & schema.keys():
            bounded["minimum"] = -LARGEST_INTEGER
        if not {"maximum", "exclusiveMaximum"} & schema.keys():
            bounded["maximum"] = LARGEST_INTEGER
    return bounded
