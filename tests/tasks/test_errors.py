"""The tree of errors: as it is drawn, and as it is recorded."""

import ast
import pickle
from pathlib import Path

import pytest

from overnight.tasks import errors
from overnight.tasks.errors import AccessDenied, LedgerCorrupt, OvernightError, ServiceUnavailable, WorkerLost

PACKAGE = Path(errors.__file__).parents[1]


def drawn() -> dict[str, str]:
    """The parent of each class in the tree that a comment of `tasks/errors.py` draws."""
    source = Path(errors.__file__).read_text()
    lines = [line.removeprefix("#    ") for line in source.splitlines() if line.startswith("#    ")]
    above, parents = ["Exception"], {}
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 2 + 1
        parents[line.split()[0]] = above[depth - 1]
        above[depth:] = [line.split()[0]]
    return parents


def written() -> dict[str, str]:
    """The parent of each class of the code that is an `OvernightError` or a `RowError`."""
    paths = [path for folder in ("tasks", "flows", "cli") for path in (PACKAGE / folder).rglob("*.py")]
    texts = [text for path in paths if "class " in (text := path.read_text())]
    classes = [node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    found = {"OvernightError": "Exception", "RowError": "Exception"}
    for _ in range(4):  # as deep as a tree may be: a child may come before its parent
        found |= {node.name: base.id for node in classes for base in node.bases if getattr(base, "id", "") in found}
    return found


def test_the_tree_is_drawn_as_it_is():
    assert drawn() == written()


@pytest.mark.parametrize(
    ("error", "recorded"),
    [
        (ServiceUnavailable("x"), "StorageFailed"),
        (AccessDenied("x"), "StorageRefused"),
        (LedgerCorrupt("x"), "LedgerBroken"),
        (WorkerLost("x", "infer", "ActorDiedError"), "ActorDiedError"),
        (errors.TooManyQuarantined("x"), "TooManyQuarantined"),
    ],
)
def test_records_keep_the_name_that_they_had_when_a_class_gets_another(error: OvernightError, recorded: str):
    travelled = pickle.loads(pickle.dumps(error))
    assert (type(travelled), travelled.error_type) == (type(error), recorded)


@pytest.mark.parametrize(("most", "text"), [(1, "a and 2 more"), (3, "a, b, c"), (9, "a, b, c")])
def test_a_long_list_of_names_says_how_many_others_there_are(most: int, text: str):
    assert errors.shortened(["a", "b", "c"], most) == text
