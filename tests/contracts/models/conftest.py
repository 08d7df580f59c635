"""The cases of this suite, each written once for all its tests."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from tests.contracts.models.adapters.endpoints import SERVERS
from tests.contracts.models.case import Case, ModelLeaf
from tests.contracts.models.suite import SUITE

Build = Callable[..., Case]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    """A function that returns the case of one of a leaf's forms, which it writes once."""
    cases: dict[tuple[str, str], Case] = {}

    def case_of(leaf: ModelLeaf, form: str | None = None) -> Case:
        kind = next(kind for kind, known in SUITE.adapters.items() if known is leaf)
        key = kind, form or leaf.first
        if key not in cases:
            torch.manual_seed(11)
            cases[key] = replace(leaf.forms[key[1]](tmp_path_factory.mktemp(kind)), kind=kind)
        return cases[key]

    with SERVERS:
        yield case_of
