"""Compare a job file's `module:Name` and `kwargs` with the source of the class or function, without running any of it.

What the source does not show, such as an inherited `__init__`, is left to the import.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeGuard

from overnight.tasks.config.code_folders import with_folder
from overnight.tasks.config.user_code import import_target, imported_module, name_missing, not_found, source_of
from overnight.tasks.errors import JobError

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPOUND = (ast.If, ast.Try, ast.ExceptHandler, ast.With, ast.For, ast.While)


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
        """Raise `JobError` if the source shows that the target is missing or does not take the arguments."""
        module_name, _, name = self.target.partition(":")
        path = source_of(module_name, self.target)
        if path is None:
            raise not_found(self.target, self.stage)
        tree = self._parsed(path)
        if tree is None:
            return
        bindings = dict(_bindings(tree))
        if name in bindings:
            self._check_node(bindings[name])
        elif "*" not in bindings:
            raise name_missing(self.target, [public for public in bindings if not public.startswith("_")], self.stage)

    def check_import(self) -> None:
        """Import the target. Raise `JobError` if that fails, or if it does not take the arguments of the stage."""
        code = import_target(self.target, self.stage)
        try:
            signature = inspect.signature(code)
        except (TypeError, ValueError):  # for a class in C
            return
        self._check_call(signature, is_class=isinstance(code, type))

    def _check_node(self, node: ast.AST) -> None:
        if isinstance(node, FUNCTIONS) and not node.decorator_list:
            self._check_call(_signature(node.args), is_class=False)
        elif isinstance(node, ast.ClassDef) and not (node.bases or node.keywords or node.decorator_list):
            self._check_class(node)  # what it inherits or what decorates it may add methods

    def _check_class(self, node: ast.ClassDef) -> None:
        bindings = dict(_bindings(node))
        if "__call__" not in bindings:
            raise JobError(f"{self.target}: expected a method __call__(self, batch), found none. Add it.", self.stage)
        init = bindings.get("__init__")
        if init in node.body and isinstance(init, FUNCTIONS) and not init.decorator_list:
            self._check_call(_signature(init.args, is_method=True), is_class=True)
        elif not bindings.keys() & {"__init__", "__new__"}:
            self._check_call(inspect.Signature(), is_class=True)

    def _check_call(self, signature: inspect.Signature, is_class: bool) -> None:
        if not is_class and self.kwargs and not self.takes_kwargs:
            raise kwargs_refused(self.target, self.kwargs, self.stage)
        values = () if is_class else (None,) * self.given
        try:
            signature.bind(*values, **self.kwargs)
        except TypeError as error:
            call = f"kwargs gives {', '.join(self.kwargs) or 'nothing'}"
            if not is_class:
                call = f"it is called with {self.given} value{'s' * (self.given != 1)}, and {call}"
            message = f"{self.target}: {error}. It takes {signature}, and {call}. Correct kwargs in the job file."
            raise JobError(message, self.stage) from None

    def _parsed(self, path: Path) -> ast.Module | None:
        if path.suffix != ".py":
            return None
        try:
            tree = ast.parse(path.read_bytes())
            compile(tree, path.name, "exec")  # refuses what has no meaning, such as two parameters of one name
        except SyntaxError as error:
            problem = f"expected Python in {path.name}, found {error.msg} in line {error.lineno}"
            raise JobError(f"{self.target}: {problem}. Correct the file.", self.stage) from None
        except (OSError, ValueError):  # the import reports the error
            return None
        return tree


def is_function(target: str) -> bool:
    """Return True if the source shows that `target` is a function, a lambda, a `partial`, or another name of one.

    It may be imported from another module. Return False for a name that is not found or for another call's result.
    """
    target = with_folder(target)
    module_name, _, name = target.partition(":")
    history: set[tuple[str, str]] = set()
    while (module_name, name) not in history:
        history.add((module_name, name))
        path = source_of(module_name, target)
        if path is None or path.suffix != ".py":
            return False
        try:
            node = dict(_bindings(ast.parse(path.read_bytes()))).get(name)
        except (OSError, SyntaxError, ValueError):
            return False
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Call) and value.args and ast.unparse(value.func).endswith("partial"):
            value = value.args[0]
        if isinstance(node, FUNCTIONS) or isinstance(value, ast.Lambda):
            return True
        if isinstance(value, ast.Name):
            name = value.id
        elif isinstance(node, ast.ImportFrom):
            module_name = imported_module(node, path, module_name) or ""
            name = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
    return False


def kwargs_refused(target: str, kwargs: Mapping[str, Any], stage: str) -> JobError:
    """Return the error for a job file that gives `kwargs` to the function `target`, which takes none."""
    return JobError(
        f"{target}: kwargs ({', '.join(kwargs)}) are for the __init__ of a class, and this is a function. Remove them "
        "or write a class.",
        stage,
    )


def _bindings(parent: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield each name that the body of a module or class binds, also below `if` and `try`, with the node that does."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, COMPOUND):
            yield from _bindings(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for part in chain.from_iterable(map(ast.walk, targets)):
                if _is_stored(part):
                    yield part.id, node
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield node.name, node
        elif _is_stored(node):  # the variable of a loop
            yield node.id, node


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _signature(arguments: ast.arguments, is_method: bool = False) -> inspect.Signature:
    """Return the signature of a function by the source of its arguments, with each default as it is written."""
    function = ast.Lambda(arguments, ast.Constant(None))
    for node in ast.walk(arguments):
        if isinstance(node, ast.arg):
            node.annotation = None
    arguments.defaults = list(map(_as_written, arguments.defaults))
    arguments.kw_defaults = [default and _as_written(default) for default in arguments.kw_defaults]
    code = compile(ast.fix_missing_locations(ast.Expression(function)), "<signature>", "eval")
    signature = inspect.signature(eval(code, {"_Source": _Source}))
    parameters = list(signature.parameters.values())
    if is_method and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        parameters = parameters[1:]
    return inspect.Signature(parameters)


class _Source:
    """A default as it is written: `Signature` shows a default by its `repr`."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _as_written(default: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("_Source", ast.Load()), [ast.Constant(ast.unparse(default))], [])
