"""The base classes of a job file's sections: `Settings`, and `Leaf`, the settings of one `kind`."""

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from overnight.tasks.config.user_signature import UserCode


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
        """Return the settings that change results, as JSON values, for the fingerprint of a job.

        Settings named in `operational` or in `but` are left out. So are settings that have their defaults; a new
        setting with a default then changes no fingerprint.
        """
        without = {*but, *(name for base in type(self).__mro__ for name in vars(base).get("operational", ()))}
        return {"kind": self.kind, **self.model_dump(mode="json", exclude_defaults=True, exclude=without)}
