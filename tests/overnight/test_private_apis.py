"""What libraries keep to themselves is used in one file a library, which names the version that it was written for."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import overnight

PACKAGE = Path(overnight.__file__).parent
OWN = {"self", "cls", "os", "entry", "segment"}  # os._exit and the _replace of named tuples are public


def code() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("api", "cli", "flows", "tasks"):
        for path in (PACKAGE / folder).rglob("*.py"):
            yield f"{folder}/{path.relative_to(PACKAGE / folder)}", ast.parse(path.read_text())


def private_imports(tree: ast.Module) -> set[str]:
    """Modules of libraries with a part that begins with an underscore, and such names that are imported from them."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if "._" in name}


def private_attributes(tree: ast.Module) -> set[str]:
    """Attributes with an underscore that none of this file's classes has."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    own = {
        getattr(node, "name", None) or ast.unparse(getattr(node, "target", node))
        for one in classes
        for node in one.body
    }
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and node.attr not in {*own, "_fields"}  # of named tuples, and public
        and not node.attr.startswith("__")
        and isinstance(node.value, ast.Name)
        and node.value.id not in OWN
    }


@pytest.mark.parametrize(
    ("find", "expected"),
    [
        (
            private_imports,
            {
                "flows/runs/prefect_internals.py": {"prefect._internal.concurrency.threads.get_global_loop"},
                "tasks/resources/ray_internals.py": {
                    "ray._private.ray_constants",
                    "ray._private.state.state",
                    "ray._private.thirdparty.pynvml",
                    "ray._private.worker",
                    "ray.data._internal.execution.execution_callback.ExecutionCallback",
                },
            },
        ),
        (
            private_attributes,
            {
                "api/process_state.py": {"_handlerList"},
                "tasks/resources/ray_internals.py": {"_global_node", "_topology"},
                "flows/runs/prefect_internals.py": {"_parameter_openapi_schema", "_stopped", "_threading_atexits"},
                "flows/runs/task_future.py": {"_run_prefect_task"},
            },
        ),
    ],
)
def test_private_names_are_used_where_their_version_is_checked(find, expected):
    found = {file: names for file, tree in code() if (names := find(tree))}
    assert found == expected
    for file in found:
        assert "WRITTEN_FOR" in (PACKAGE / file).read_text()
