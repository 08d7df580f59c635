"""The product's code is as dense as that of the codebases that it follows, and no denser (`.ci/density.py`)."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What users read: the command line, the Python API, and what they extend.
PUBLIC_FACE = "overnight/"


@pytest.fixture(scope="module")
def density() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / ".ci")
        yield importlib.import_module("density")


@pytest.fixture(scope="module")
def product(density: ModuleType) -> object:
    counts = density.Counts()
    for file in density.product_files():
        counts.add(density.count(ROOT / file))
    return counts


def test_local_names_are_nouns(product) -> None:  # type: ignore[no-untyped-def]
    share = product.named_badly.total() / product.names.total()
    assert share <= 0.01, product.named_badly.most_common(30)


# The aim is 25, 25 and 60. A commit that raises a bound gives the reason.
@pytest.mark.parametrize(
    ("figure", "most"), [("conditionals", 25), ("comprehensions", 30), ("long_lines", 61)], ids=str
)
def test_a_thousand_lines_of_code_have_few_of_each(product, figure: str, most: int) -> None:  # type: ignore[no-untyped-def]
    assert getattr(product, figure) * 1000 / product.code <= most


def test_no_function_has_more_than_sixty_lines(product) -> None:  # type: ignore[no-untyped-def]
    assert max(product.lengths) <= 60


def test_the_count_tells_a_participle_from_a_noun(density: ModuleType) -> None:
    names = ("found", "rows_found", "quarantined", "seed", "place", "receipt", "_left", "speed")
    expected = ["found", "rows_found", "quarantined", "place", "_left"]
    assert list(filter(density.is_participle_or_pronoun, names)) == expected


def is_flow(node: ast.AST) -> bool:
    """Return whether a function is a Prefect flow, whose docstring Prefect's UI shows with its arguments."""
    decorators = getattr(node, "decorator_list", [])
    return any(ast.unparse(decorator).partition("(")[0] == "flow" for decorator in decorators)


def docstrings(density: ModuleType) -> Iterator[tuple[str, int, bool]]:
    for file in density.product_files():
        if file.as_posix().startswith(PUBLIC_FACE):
            continue
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)) and (
                text := ast.get_docstring(node)
            ):
                if is_flow(node):
                    continue
                yield f"{file}:{getattr(node, 'lineno', 1)}", len(text.splitlines()), isinstance(node, ast.Module)


def test_a_docstring_outside_the_public_face_is_short(density: ModuleType) -> None:
    long = [f"{place} {lines}" for place, lines, is_module in docstrings(density) if lines > (6 if is_module else 3)]
    assert not long, f"{len(long)}: {long}"
