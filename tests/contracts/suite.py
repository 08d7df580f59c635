"""A contract suite: the promises of one kind of leaf, held by every leaf that its union has.

A suite has one adapter per leaf and one test per promise. `Suite.promise` runs the test once per leaf, and keeps the
cell of the table leaf x promise: a test, or the reason why the promise does not apply to this leaf.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, get_args

import pytest

Adapter = TypeVar("Adapter")
Test = TypeVar("Test", bound=Callable[..., Any])


def kinds_of(union: Any) -> set[str]:
    """The tags of a discriminated union's leaves that ship with Overnight."""
    leaves = get_args(get_args(union)[0]) if get_args(union) else ()
    tags = {tag for leaf in leaves for tag in get_args(leaf.model_fields["kind"].annotation)}
    assert tags, f"expected a discriminated union of leaves, found {union!r}"
    return tags


@dataclass
class Suite(Generic[Adapter]):
    """The leaves of one union with their adapters, and the promises that were declared for them.

    `promises` has the reasons of the leaves that a promise does not apply to, by promise and leaf; `modules` the
    test module of each promise, so that the table has the same order whichever file is imported first.
    """

    name: str
    kinds: set[str]
    adapters: Mapping[str, Adapter]
    promises: dict[str, Mapping[str, str]] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)

    def promise(self, sentence: str, **not_applicable: str) -> Callable[[Test], Test]:
        """Run the decorated test with the argument `leaf`, once per adapter, except the named leaves.

        `not_applicable` has the reason of each leaf that is left out: a fact of its format, never a fault.
        """
        assert sentence not in self.promises, f"expected one test of the promise {sentence!r}, found two"
        assert set(not_applicable) <= self.kinds, f"expected kinds of {self.name}, found {set(not_applicable)}"
        assert all(not_applicable.values()), "expected a reason for each leaf that is left out"
        self.promises[sentence] = not_applicable
        self.modules[sentence] = sys._getframe(1).f_globals["__name__"]
        leaves = [pytest.param(leaf, id=kind) for kind, leaf in self.adapters.items() if kind not in not_applicable]
        return pytest.mark.parametrize("leaf", leaves)

    def assert_complete(self) -> None:
        """Fail for a leaf of the union without an adapter, and for an adapter without a leaf."""
        assert set(self.adapters) == self.kinds, f"{self.name}: leaf and adapter differ"

    def rows(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield each promise with the cell of each leaf: `test`, or the reason why there is none."""
        for sentence in sorted(self.promises, key=self.modules.__getitem__):
            reasons = self.promises[sentence]
            yield sentence, {kind: reasons.get(kind, "test") for kind in self.adapters}


def as_markdown(suites: Iterable[Suite[Any]]) -> str:
    """The tables leaf x promise; reasons stand below their table by number."""
    lines: list[str] = []
    for suite in suites:
        reasons: dict[str, int] = {}
        lines += [f"## {suite.name}", "", "| promise | " + " | ".join(suite.adapters) + " |"]
        lines += ["| --- |" + " --- |" * len(suite.adapters)]
        for sentence, cells in suite.rows():
            marks = []
            for reason in cells.values():
                is_tested = reason == "test"
                marks.append("test" if is_tested else f"[{reasons.setdefault(reason, len(reasons) + 1)}]")
            lines.append(f"| {sentence} | " + " | ".join(marks) + " |")
        lines += ["", *(f"{number}. {reason}" for reason, number in reasons.items()), ""]
    return "\n".join(lines)
