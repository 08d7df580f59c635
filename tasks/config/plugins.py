"""Leaves of installed packages: entry points that join a room's union, with the same typing, errors and schema.

[project.entry-points."overnight.predictors"]
    colours = "my_package.colours:Colours"

The name is the leaf's `kind`. A plug-in that cannot be used affects only the jobs that name its kind.
"""

import warnings
from importlib import metadata
from typing import Annotated, Any, Literal, Union, get_args

from pydantic import ConfigDict, create_model, model_validator

from overnight.tasks.config.settings import Leaf


def leaves_by_kind(union: Any) -> dict[str, Any]:
    """Return the leaves of a room's union by their kinds."""
    types = get_args(union)[0]
    return {_kind(leaf): leaf for leaf in get_args(types) or (types,)}


def with_plugins(union: Any, group: str, parent: type[Leaf]) -> Any:
    """Return a room's union of leaves with the leaves of the entry points `overnight.GROUP`, which inherit `parent`.

    A leaf that cannot be used is replaced by one that refuses its settings with the reason.
    """
    leaves, discriminator = leaves_by_kind(union), get_args(union)[1]
    built_in = frozenset(leaves)
    owners: dict[str, str] = {}
    for point in sorted(metadata.entry_points(group=f"overnight.{group}"), key=lambda point: (point.name, point.value)):
        package = point.dist.name if point.dist else "an unknown package"
        if point.name in built_in:
            problem = f"{package}: its plug-in for kind: {point.name} is ignored: this kind is built in"
            warnings.warn(problem, stacklevel=2)
        elif point.name in owners:
            packages = f"{owners[point.name]} and {package}"
            leaves[point.name] = _refusing(point, packages, "both bring it. Uninstall one")
        else:
            owners[point.name] = package
            leaves[point.name] = _loaded(point, package, parent)
    return Annotated[Union[tuple(leaves.values())], discriminator]  # noqa: UP007 - their number varies


def _loaded(point: metadata.EntryPoint, package: str, parent: type[Leaf]) -> type[Leaf]:
    """Return the plug-in's leaf, or a leaf that reports why the plug-in cannot be used."""
    try:
        leaf = point.load()
    except (Exception, SystemExit) as error:
        return _refusing(point, package, f"importing {point.value} raised {type(error).__name__}: {error}")
    if not (isinstance(leaf, type) and issubclass(leaf, parent)):
        base = f"{parent.__module__}.{parent.__name__}"
        return _refusing(point, package, f"expected {point.value} to inherit from {base}, found {leaf!r:.80}")
    kind, name = _kind(leaf), point.name
    if kind != name:
        reason = f'expected kind: Literal["{name}"] = "{name}" in {point.value}, found {kind!r}'
        return _refusing(point, package, reason)
    if leaf.__abstractmethods__:
        verbs = ", ".join(sorted(leaf.__abstractmethods__))
        return _refusing(point, package, f"expected {point.value} to have {verbs}, found none")
    return leaf


def _kind(leaf: type[Leaf]) -> Any:
    field = leaf.model_fields.get("kind")
    if field is None or get_args(field.annotation) != (field.default,):
        return None
    return field.default


def _refusing(point: metadata.EntryPoint, package: str, reason: str) -> type[Leaf]:
    """Return a leaf of this kind that refuses every job file."""

    def refuse(cls: type, values: Any) -> Any:
        raise ValueError(f"the plug-in {point.name} of the package {package} cannot be used: {reason}.")

    make: Any = create_model
    validators = {"refuse": model_validator(mode="before")(classmethod(refuse))}  # type: ignore[arg-type]
    kind = (Literal[point.name], point.name)
    return make(f"Broken_{point.name}", __base__=_Anything, __validators__=validators, kind=kind)


class _Anything(Leaf):
    """Accept any settings: those of a plug-in that cannot be used are unknown."""

    model_config = ConfigDict(extra="allow")
