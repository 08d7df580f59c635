"""The base classes of a job file's sections: `Settings`, and `Leaf`, the settings of one `kind`."""

import types
from datetime import date, time, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ByteSize, ConfigDict

if TYPE_CHECKING:
    from overnight.tasks.config.user_signature import UserCode

PLAIN = (int, float, ByteSize, date, time, timedelta, types.NoneType)
CONTAINERS = (Union, types.UnionType, list, tuple, set, frozenset, dict)


class Adjustable:
    """Marks the type of a setting that a run of a deployment may change. It names no code, file, address or variable.

    Numbers, times and choices are adjustable by themselves. Every other setting is not, unless its type is marked.
    """

    @classmethod
    def is_among(cls, annotation: Any, marks: Any = ()) -> bool:
        """Return True if a setting with this type and these marks is adjustable: each part of its type has to be."""
        if any(isinstance(mark, cls) for mark in marks):
            return True
        origin, parts = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return cls.is_among(parts[0], parts[1:])
        if origin in CONTAINERS:
            values = parts[1:] if origin is dict else parts
            return all(part is Ellipsis or cls.is_among(part) for part in values)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return all(cls.is_among(field.annotation, field.metadata) for field in annotation.model_fields.values())
        return origin is Literal or annotation in PLAIN


AdjustableText = Annotated[str, Adjustable()]
AdjustableFlag = Annotated[bool, Adjustable()]


class Settings(BaseModel):
    """A section of a job file: a frozen model that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Leaf(Settings):
    """The settings of one source, shuffle, step, predictor or sink. A leaf adds `kind: Literal["its name"]`.

    The verbs of a room's class are abstract methods. So a leaf without one of them cannot be constructed.
    """

    operational: ClassVar[tuple[str, ...]] = ()  # settings of a class that affect how work is done, not the results

    if TYPE_CHECKING:

        @property
        def kind(self) -> str: ...

    def code(self) -> "list[UserCode]":
        """Return the user's classes and functions that the leaf calls, so that they are checked before a run."""
        return []

    def libraries(self) -> tuple[str, ...]:
        """Return the optional libraries that the leaf imports in a worker, so that they are checked before a run.

        Each is a key of `EXTRAS` in `extras.py`.
        """
        return ()

    def content_settings(self, *but: str) -> dict[str, Any]:
        """Return the settings that change results, as JSON values, for a job's fingerprint. `but` names more to omit.

        Defaults are omitted, so that a new setting with a default changes no fingerprint.
        """
        operational = set(but)
        for base in type(self).__mro__:
            operational.update(vars(base).get("operational", ()))
        return {"kind": self.kind, **self.model_dump(mode="json", exclude_defaults=True, exclude=operational)}
