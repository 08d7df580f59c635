"""Compare a job file's `module:Name` and `kwargs` with the source of the class or function, without running any of it.

What the source does not show, such as an inherited `__init__`, is left to the import.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from overnight.tasks.config.code_folders import with_folder
from overnight.tasks.config.user_code import import_target, imported_module, name_missing, not_found, source_of
from overnight.tasks.errors import JobError

EMPTY = inspect.Parameter.empty


@dataclass(frozen=True)
class UserCode:
    """A class or function of the user, and how a stage calls it.

    `target` is its name, as `module:Name`. A class is made with `kwargs`. A function is called with `given` values, and
    also with `kwargs` if `takes_kwargs`.
    """

    target: str
    stage: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    given: int = 1
    takes_kwargs: bool = True

    def check_source(self) -> None:
        """Raise `JobError` if the source shows that the target does not exist or does not take the stage's arguments.

        No code runs. What the source does not show, such as an inherited `__init__`, passes.
        """
        module_name, _, name = self.target.partition(":")
        path = source_of(module_name, self.target)
        if path is None:
            raise not_found(self.target, self.stage)
        tree = self._parsed(path)
        if tree is None:
            return
        bound = list(_bound(tree))
        found = [node for node in bound if _name(node) == name]
        if found:
            self._check_node(found[-1])
        elif not any(_name(node) == "*" for node in bound):
            public = [known for node in bound if (known := _name(node)) and not known.startswith("_")]
            raise name_missing(self.target, public, self.stage)

    def check_import(self) -> None:
        """Import the target, which runs its module.

        Raise `JobError` if the import fails, or if the target does not take the arguments of the stage.
        """
        found = import_target(self.target, self.stage)
        try:
            signature = inspect.signature(found)
        except (TypeError, ValueError):  # for a class in C
            return
        self._check_call(signature, is_class=isinstance(found, type))

    def _check_node(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list:
            self._check_call(_signature(node.args), is_class=False)
        elif isinstance(node, ast.ClassDef) and not (node.bases or node.keywords or node.decorator_list):
            self._check_class(node)  # what it inherits or what decorates it may add methods

    def _check_class(self, node: ast.ClassDef) -> None:
        methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
        names = {name for each in node.body for name in _assigned(each)} | methods.keys()
        if "__call__" not in names:
            raise JobError(f"{self.target}: expected a method __call__(self, batch), found none. Add it.", self.stage)
        init = methods.get("__init__")
        if init is not None and not init.decorator_list:
            self._check_call(_signature(init.args, is_method=True), is_class=True)
        elif not names & {"__init__", "__new__"}:
            self._check_call(inspect.Signature(), is_class=True)

    def _check_call(self, signature: inspect.Signature, is_class: bool) -> None:
        if not is_class and self.kwargs and not self.takes_kwargs:
            raise kwargs_refused(self.target, self.kwargs, self.stage)
        try:
            signature.bind(*[None] * (0 if is_class else self.given), **self.kwargs)
        except TypeError as error:
            gives = f"kwargs gives {', '.join(self.kwargs) or 'nothing'}"
            if not is_class:
                gives = f"it is called with {self.given} value{'s' * (self.given != 1)}, and {gives}"
            raise JobError(
                f"{self.target}: {error}. It takes {signature}, and {gives}. Correct kwargs in the job file.",
                self.stage,
            ) from None

    def _parsed(self, path: Path) -> ast.Module | None:
        if path.suffix != ".py":
            return None
        try:
            return ast.parse(path.read_bytes())
        except SyntaxError as error:
            told = f"{self.target}: expected Python in {path.name}, found {error.msg} in line {error.lineno}"
            raise JobError(f"{told}. Correct the file.", self.stage) from None
        except (OSError, ValueError):  # the import reports the error
            return None


def is_function(target: str) -> bool:
    """Return True if the source shows that `target` (`module:Name`) is a function. No code runs.

    It may be a lambda, a function that is imported from another module, another name of a function, or a `partial` of
    one. Return False for a class, for a name that is not found, and for the result of another call.
    """
    target = with_folder(target)
    module_name, _, name = target.partition(":")
    seen: set[tuple[str, str]] = set()
    while (module_name, name) not in seen:
        seen.add((module_name, name))
        path = source_of(module_name, target)
        try:
            tree = ast.parse(path.read_bytes()) if path and path.suffix == ".py" else None
        except (OSError, SyntaxError, ValueError):
            return False
        binding = [node for node in (_statements(tree) if tree else ()) if name in map(_name, _names(node))]
        node = binding[-1] if binding else None
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Call) and value.args and ast.unparse(value.func).endswith("partial"):
            value = value.args[0]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or isinstance(value, ast.Lambda):
            return True
        if isinstance(value, ast.Name):
            name = value.id
        elif isinstance(node, ast.ImportFrom) and path:
            module_name = imported_module(node, path, module_name) or ""
            name = next(alias.name for alias in node.names if _name(alias) == name)
    return False


def kwargs_refused(target: str, kwargs: Mapping[str, Any], stage: str) -> JobError:
    """Return the error for a job file that gives `kwargs` to the function `target`, which takes none."""
    return JobError(
        f"{target}: kwargs ({', '.join(kwargs)}) are for the __init__ of a class, and this is a function. Remove them "
        "or write a class.",
        stage,
    )


def _bound(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that bind a name of the module, also below `if` and `try`."""
    for statement in _statements(tree):
        yield from _names(statement)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            waiting = [*ast.iter_child_nodes(node), *waiting]
        elif isinstance(node, ast.ExceptHandler):
            waiting = [*node.body, *waiting]
        else:
            yield node


def _names(statement: ast.AST) -> Iterator[ast.AST]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        yield from statement.names
    elif isinstance(statement, ast.Assign):
        yield from (name for each in statement.targets for name in ast.walk(each) if isinstance(name, ast.Name))
    else:
        yield statement


def _name(node: ast.AST) -> str | None:
    if isinstance(node, ast.alias):
        return node.asname or node.name.partition(".")[0]
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.AnnAssign):
        return _name(node.target)
    return getattr(node, "name", None)


def _assigned(node: ast.AST) -> list[str]:
    return [each.id for each in getattr(node, "targets", []) if isinstance(each, ast.Name)]


def _signature(arguments: ast.arguments, is_method: bool = False) -> inspect.Signature:
    kinds = inspect.Parameter
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    made = [
        kinds(
            each.arg,
            kinds.POSITIONAL_ONLY if place < len(arguments.posonlyargs) else kinds.POSITIONAL_OR_KEYWORD,
            default=EMPTY if place < required else _default(arguments.defaults[place - required]),
        )
        for place, each in enumerate(positional)
    ]
    if arguments.vararg:
        made.append(kinds(arguments.vararg.arg, kinds.VAR_POSITIONAL))
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        made.append(kinds(each.arg, kinds.KEYWORD_ONLY, default=EMPTY if default is None else _default(default)))
    if arguments.kwarg:
        made.append(kinds(arguments.kwarg.arg, kinds.VAR_KEYWORD))
    is_bound = is_method and made and made[0].kind is not kinds.VAR_POSITIONAL
    return inspect.Signature(made[1:] if is_bound else made)


class _Source:
    """A default as it is written: `Signature` shows a default by its `repr`."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _default(node: ast.expr) -> _Source:
    return _Source(ast.unparse(node))
