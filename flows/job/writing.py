"""Write a section of a job as its job file would have it: without the settings that have their defaults."""

from collections.abc import Mapping
from datetime import date
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel


def written(section: BaseModel) -> dict[str, Any]:
    """Return the settings of a settings model that differ from their defaults, as YAML values in the model's order.

    `kind` is always there, and first, because it chooses the class.
    """
    dumped = section.model_dump(mode="json")
    found: dict[str, Any] = {"kind": dumped["kind"]} if "kind" in dumped else {}
    for name, field in type(section).model_fields.items():
        value, default = getattr(section, name), field.get_default(call_default_factory=True, validated_data={})
        plain = plain_value(value) if _holds_section(value) else dumped[name]
        if field.is_required() or default not in (value, plain):
            found[name] = plain
    return found


def plain_value(value: Any) -> Any:
    """Return a value in which settings models, paths and dates are replaced by YAML values."""
    if isinstance(value, BaseModel):
        return written(value)
    if isinstance(value, Mapping):
        return {str(key): plain_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(inner) for inner in value]
    return str(value) if isinstance(value, PurePath | date) else value


def _holds_section(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_section, value.values()))
    return isinstance(value, BaseModel) or (isinstance(value, list | tuple) and any(map(_holds_section, value)))
