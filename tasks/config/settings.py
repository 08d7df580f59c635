"""What every leaf is: a frozen model of its settings, tagged by `kind`."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Leaf(BaseModel):
    """Settings of one source, step, predictor or sink. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    operational: ClassVar[
        tuple[str, ...]
    ] = ()  # settings of a class's own that say how work is done, not what comes out

    def content_settings(self, *but: str) -> dict[str, Any]:
        """Return the settings that change results as JSON values, without defaults: a new setting changes nothing.

        but: further settings to leave out.
        """
        without = {*but, *(name for base in type(self).__mro__ for name in vars(base).get("operational", ()))}
        kind: str = self.kind  # type: ignore[attr-defined]
        return {"kind": kind, **self.model_dump(mode="json", exclude_defaults=True, exclude=without)}
