"""Read and write YAML as its readers expect it: every value has the type that it looks like, and no key is lost.

Only `true` and `false` are Boolean, so that a country stays `NO`. Times and dates stay text (`16:30` is not 990),
numbers are decimal, and `1e-3` is a number. A key written twice is an error; PyYAML would keep the last one.
"""

import math
import re
from collections.abc import Hashable, Iterable, Mapping
from datetime import date
from pathlib import PurePath
from typing import Any

import yaml
from pydantic import BaseModel

from overnight.tasks.errors import JobError


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[Any]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in names:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value} is written twice", key.start_mark)
                names.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes a text if this file's loader, or a YAML 1.1 loader, would read another type."""


for _name, _pattern, _first in (
    ("bool", r"true|false", "tf"),
    ("null", r"~|null|", ["~", "n", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+", "-+.0123456789"),
    ("float", r"[-+]?\.inf|\.nan", "-+."),
    ("merge", r"<<", "<"),
):
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"^(?:{_pattern})$"), list(_first))


def yaml_line(value: Any) -> str:
    """Return a value as YAML on one line, which `parse_yaml` reads back, with quotes where a text needs them."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return text.removesuffix("\n").removesuffix("\n...")  # `...` ends a document of one text


def replace_values(text: str, values: Mapping[tuple[str | int, ...], str]) -> str:
    """Return a YAML document in which some values are replaced, and the rest is unchanged."""
    spans = []
    for keys, new in values.items():
        node = yaml.compose(text, _Loader)
        for key in keys:
            if isinstance(node, yaml.SequenceNode):
                node = node.value[int(key)]
            else:
                node = next(value for name, value in reversed(node.value) if name.value == key)
        spans.append((node.start_mark.index, node.end_mark.index, new))
    for start, end, new in sorted(spans, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def value_at(data: Any, keys: Iterable[str | int]) -> Any:
    """Return the value in nested mappings and lists to which `keys` lead: names in mappings, and indexes of lists."""
    for key in keys:
        data = data[key]
    return data


def yaml_document(value: Any) -> str:
    """Return a value as a YAML document of several lines, which `parse_yaml` reads back."""
    try:
        return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))
    except yaml.representer.RepresenterError as error:
        problem, *values = error.args
        raise JobError(f"expected values of YAML in a job, found {values}: {problem}.") from None


def written(section: BaseModel) -> dict[str, Any]:
    """Return the settings of a settings model that differ from their defaults, as YAML values in the model's order.

    `kind` is always there, and first, because it chooses the class.
    """
    dump = section.model_dump(mode="json")
    settings: dict[str, Any] = {"kind": dump["kind"]} if "kind" in dump else {}
    for name, field in type(section).model_fields.items():
        value, default = getattr(section, name), field.get_default(call_default_factory=True, validated_data={})
        key = field.alias or name
        plain = plain_value(value) if _holds_section(value) else dump[key]
        if field.is_required() or default not in (value, plain):
            settings[key] = plain
    return settings


def plain_value(value: Any) -> Any:
    """Return a value in which settings models, paths and dates are replaced by YAML values."""
    if isinstance(value, BaseModel):
        return written(value)
    if isinstance(value, Mapping):
        return {str(key): plain_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(plain_value, value))
    return str(value) if isinstance(value, PurePath | date) else value


def _holds_section(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_section, value.values()))
    return isinstance(value, BaseModel) or (isinstance(value, list | tuple) and any(map(_holds_section, value)))


NEEDS_QUOTES = re.compile(r"\{partition\}|\$\{")  # in a mapping in braces


def parse_yaml(text: str, what: str) -> Any:
    """Return the value of a YAML document. `what` names the document in errors."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        if not error.problem_mark:
            raise JobError(f"{what}: not valid YAML: {error.problem}") from None
        number = error.problem_mark.line
        line = "".join(text.splitlines()[number : number + 1])
        advice = ". Write a value with {partition} or ${VAR} in quotes" if NEEDS_QUOTES.search(line) else ""
        raise JobError(f"{what}:{number + 1}: not valid YAML: {error.problem}{advice}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise JobError(f"{what}: not valid YAML: {str(error).splitlines()[0]}") from None
