"""Leaves of installed packages: entry points that join a room's union, with the same typing, errors and schema.

[project.entry-points."overnight.predictors"]
    colours = "my_package.colours:Colours"

The name is the leaf's `kind`. The class is like those of that room: `kind: Literal["colours"]`, its settings and its
methods. The groups are overnight.sources, .steps, .predictors and .sinks. A package must be installed on all machines
that run the job, including the nodes of a cluster. If its room has `fingerprint`, the leaf uses it to show that its
results changed.

A plug-in that cannot be used affects only the jobs that name its kind: their error names its package and the reason.
Built-in kinds cannot be replaced.
"""

import warnings
from importlib import metadata
from typing import Annotated, Any, Literal, Union, get_args

from pydantic import ConfigDict, create_model, model_validator

from overnight.tasks.config.settings import Leaf

PREFIX = "overnight."


def with_plugins(union: Any, group: str, parent: type[Leaf]) -> Any:
    """Return a room's union of leaves with the leaves that installed packages add to it by entry points.

    `union` is Annotated, with `kind` as its discriminator. `group` is the entry points' group without `overnight.`,
    such as `sinks`. `parent` is the class from which each leaf of the room must inherit. A leaf that cannot be used is
    replaced by one that refuses its settings with the reason.
    """
    leaves, discriminator = get_args(union)
    known = {_kind(leaf): leaf for leaf in get_args(leaves) or (leaves,)}
    built_in = frozenset(known)
    owners: dict[str, str] = {}
    for point in sorted(metadata.entry_points(group=f"{PREFIX}{group}"), key=lambda point: (point.name, point.value)):
        package = point.dist.name if point.dist else "an unknown package"
        if point.name in built_in:
            problem = f"{package}: its plug-in for kind: {point.name} is ignored: this kind is built in"
            warnings.warn(problem, stacklevel=2)
            continue
        if point.name in owners:
            known[point.name] = _broken(point, f"{owners[point.name]} and {package}", "both bring it. Uninstall one")
            continue
        owners[point.name] = package
        known[point.name] = _loaded(point, package, parent)
    return Annotated[Union[tuple(known.values())], discriminator]  # noqa: UP007 - their number varies


def _loaded(point: metadata.EntryPoint, package: str, parent: type[Leaf]) -> type[Leaf]:
    """Return the plug-in's leaf, or a leaf that reports why the plug-in cannot be used."""
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
    """Return a leaf of this kind that refuses every job file."""

    def refuse(cls: type, values: Any) -> Any:
        raise ValueError(f"the plug-in {point.name} of the package {package} cannot be used: {why}.")

    make: Any = create_model
    validators = {"refuse": model_validator(mode="before")(classmethod(refuse))}  # type: ignore[arg-type]
    kind = (Literal[point.name], point.name)
    return make(f"Broken_{point.name}", __base__=_Anything, __validators__=validators, kind=kind)


class _Anything(Leaf):
    """Accept any settings: those of a plug-in that cannot be used are unknown."""

    model_config = ConfigDict(extra="allow")
