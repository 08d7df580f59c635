"""The entries of a job's `inference`: models and steps in one union, which `kind` distinguishes.

An entry of `kind: python` may be either. It is a step if it has only settings of steps, and has `explode` or a function
as its target. Otherwise it is a model, for example a class, which each worker makes once.
"""

from typing import Annotated, Any, Union

from pydantic import Discriminator, GetJsonSchemaHandler, Tag
from pydantic.json_schema import JsonSchemaValue

from overnight.tasks.config.plugins import leaves_by_kind
from overnight.tasks.config.settings import Leaf
from overnight.tasks.config.user_signature import is_function
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.preprocess.kinds import PreprocessStep, PythonStep, Step

STEP = "step "  # before the tag of a step: a kind may be a model's too
MODELS, STEPS = leaves_by_kind(AnyPredictor), leaves_by_kind(Step)


def _tag(entry: Any) -> str | None:
    """Return the tag of the leaf that an entry of `inference` is meant for."""
    if isinstance(entry, Leaf):
        return f"{STEP}{entry.kind}" if isinstance(entry, PreprocessStep) else entry.kind
    kind = entry.get("kind") if isinstance(entry, dict) else None
    if kind == "python" and _is_step(entry):
        return f"{STEP}{kind}"
    return kind if kind in MODELS or not isinstance(kind, str) else f"{STEP}{kind}"


def _is_step(entry: dict[str, Any]) -> bool:
    target = entry.get("target")
    if not isinstance(target, str) or ":" not in target or not entry.keys() <= PythonStep.model_fields.keys():
        return False
    return "explode" in entry or is_function(target)


class _ByKind:
    """Name the kinds in the JSON schema, as pydantic does for a union with a discriminator."""

    def __get_pydantic_json_schema__(self, core: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        mapping: dict[str, str] = {}
        for choice in schema["oneOf"]:
            kind = handler.resolve_ref_schema(choice)["properties"]["kind"]["const"]
            mapping.setdefault(kind, choice["$ref"])
        return {**schema, "discriminator": {"propertyName": "kind", "mapping": mapping}}


_tagged = [
    *(Annotated[leaf, Tag(kind)] for kind, leaf in MODELS.items()),
    *(Annotated[leaf, Tag(f"{STEP}{kind}")] for kind, leaf in STEPS.items()),
]
ModelOrStep: Any = Annotated[Union[tuple(_tagged)], Discriminator(_tag), _ByKind()]  # noqa: UP007
