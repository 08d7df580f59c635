"""Leaves that installed packages bring: entry points that join a room's union, with the same typing, errors and schema.

    [project.entry-points."overnight.predictors"]
    colours = "my_package.colours:Colours"

The name is the leaf's `kind`, the class a leaf like those of that room: `kind: Literal["colours"]`, its settings and
its verbs. The groups are overnight.sources, .steps, .predictors and .sinks. A package has to be installed wherever the
job runs, on the nodes of a cluster too. A leaf says by `fingerprint`, where its room has one, that its results changed.

A plug-in that cannot be used costs only the jobs that name its kind: there, the error names its package and says why.
What is built in cannot be replaced.
"""

import warnings
from importlib import metadata
from typing import Annotated, Any, Literal, Union, get_args

from pydantic import ConfigDict, create_model, model_validator

from overnight.tasks.config.settings import Leaf

PREFIX = "overnight."


def with_plugins(union: Any, group: str, parent: type[Leaf]) -> Any:
    """`union` (Annotated, of leaves, told apart by `kind`) with the leaves of the entry points of `overnight.<group>`.

    parent: what a leaf of the room has to inherit from.
    """
    leaves, discriminator = get_args(union)
    known = {_kind(leaf): leaf for leaf in get_args(leaves) or (leaves,)}
    built_in = frozenset(known)
    owners: dict[str, str] = {}
    for point in sorted(metadata.entry_points(group=f"{PREFIX}{group}"), key=lambda point: (point.name, point.value)):
        package = point.dist.name if point.dist else "an unknown package"
        if point.name in built_in:
            warnings.warn(f"{package}: its plug-in for kind: {point.name} is left out: that is built in", stacklevel=2)
            continue
        if point.name in owners:
            known[point.name] = _broken(point, f"{owners[point.name]} and {package}", "both bring it. Uninstall one")
            continue
        owners[point.name] = package
        known[point.name] = _loaded(point, package, parent)
    return Annotated[Union[tuple(known.values())], discriminator]  # noqa: UP007 - their number is not known here


def _loaded(point: metadata.EntryPoint, package: str, parent: type[Leaf]) -> type[Leaf]:
    """The plug-in's leaf, or in its place one that says what is wrong with it."""
    try:
        leaf = point.load()
    except (Exception, SystemExit) as error:
        return _broken(point, package, f"importing {point.value} raised {type(error).__name__}: {error}")
    if not (isinstance(leaf, type) and issubclass(leaf, parent)):
        where = f"{parent.__module__}.{parent.__name__}"
        return _broken(point, package, f"expected {point.value} to inherit from {where}, found {leaf!r:.80}")
    if (found := _kind(leaf)) != point.name:
        return _broken(
            point, package, f'expected kind: Literal["{point.name}"] = "{point.name}" in {point.value}, found {found!r}'
        )
    if missing := sorted(leaf.__abstractmethods__):
        return _broken(point, package, f"expected {point.value} to have {', '.join(missing)}, found none")
    return leaf


def _kind(leaf: type[Leaf]) -> Any:
    field = leaf.model_fields.get("kind")
    choices = get_args(field.annotation) if field else ()
    return choices[0] if field and choices == (field.default,) else None


def _broken(point: metadata.EntryPoint, package: str, why: str) -> type[Leaf]:
    """A leaf of this kind which no job file fulfils."""

    def refuse(cls: type, values: Any) -> Any:
        raise ValueError(f"the plug-in {point.name} of the package {package} cannot be used: {why}.")

    make: Any = create_model
    validators = {"refuse": model_validator(mode="before")(classmethod(refuse))}  # type: ignore[arg-type]
    kind = (Literal[point.name], point.name)
    return make(f"Broken_{point.name}", __base__=_Anything, __validators__=validators, kind=kind)


class _Anything(Leaf):
    """Accepts any settings: those of a plug-in that cannot be used are not known."""

    model_config = ConfigDict(extra="allow")
