"""The promises of a source, and the leaves that keep them.

The adapters are the classes in `adapters/`. A test declares its promise with a topic: an adapter that the promise does
not apply to names the topic in `not_applicable`, with the reason.
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Annotated, Any

from overnight.tasks.ingest.kinds import Files, JobRows, Tables
from tests.contracts.sources import adapters
from tests.contracts.sources.adapter import Adapter
from tests.contracts.suite import Suite, kinds_of


def _adapters() -> dict[str, Adapter]:
    names = (module.name for module in pkgutil.iter_modules(adapters.__path__, f"{adapters.__name__}."))
    members = (member for name in names for member in vars(importlib.import_module(name)).values())
    kinds = {kind.kind: kind for kind in members if isinstance(kind, type) and hasattr(kind, "kind")}
    return {name: kinds[name]() for name in sorted(kinds) if issubclass(kinds[name], Adapter)}


SOURCES: Suite[Adapter] = Suite("Sources", kinds_of(Annotated[Files | Tables | JobRows, "kind"]), _adapters())
TOPICS: set[str] = set()


def promise(
    topic: str, sentence: str, of_files: str = "", **reasons: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run the decorated test with each adapter as `leaf`, except those that say that `topic` does not apply to them.

    `of_files` is the reason why it does not apply to sources whose rows are files; empty if it does.
    `reasons` are those of further kinds.
    """
    TOPICS.add(topic)
    leaves = SOURCES.adapters.items()
    reasons |= {kind: leaf.not_applicable[topic] for kind, leaf in leaves if topic in leaf.not_applicable}
    if of_files:
        reasons |= {kind: of_files for kind, leaf in leaves if leaf.rows_are_files}
    return SOURCES.promise(sentence, **reasons)
