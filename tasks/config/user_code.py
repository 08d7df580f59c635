"""Import code that a job file names as `module:Name`. Identify code by a hash, without running it.

A module is installed, or is in the working directory, or beside the job file. These two come last on the path, so that
no file in them can replace an installed package.
"""

import ast
import difflib
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from overnight.tasks.config import user_frames
from overnight.tasks.config.code_folders import folder_of, folders_of, put_last, with_folder
from overnight.tasks.errors import JobError, OvernightError


def name_of(target: Any) -> Any:
    """Return `module:Name` for a class or function that is given as a target. Return any other value as it is.

    Raise `ValueError` if workers cannot import the target, because it is part of a script, a notebook or a function.
    """
    if isinstance(target, str):
        text = target
    elif callable(target) and hasattr(target, "__qualname__"):
        text = f"{target.__module__}:{target.__qualname__}"
    else:
        return target
    module_name, _, name = text.partition(":")
    if module_name == "__main__" or "." in name:
        raise ValueError(
            f"expected a class or function at the top of a module that workers can import, found {module_name}:{name}. "
            "Write it to a file, for example my_models.py (in a notebook with %%writefile my_models.py), and name it "
            f"my_models:{name.rpartition('.')[2]}"
        )
    return text


Target = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="module:Name of a class or function, installed, beside the job file or in the working directory.",
        examples=["my_models:ResNet"],
    ),
    BeforeValidator(name_of),
    AfterValidator(with_folder),
]


def import_target(target: str, stage: str) -> Any:
    """Import and return the class or function that `target` (`module:Name`) names.

    Raise `JobError`, with this stage, if it is not found, if its import fails, or if it cannot be called.
    """
    module_name, _, name = target.partition(":")
    _find_anew(target)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise not_found(target, stage) from error
        problem = f"importing {module_name} raised {described(error, module_name)}{user_frames.quoted(error)}"
        raise JobError(f"{target}: {problem}", stage) from error
    _join_ray()
    if not hasattr(module, name):
        raise name_missing(target, [public for public in vars(module) if not public.startswith("_")], stage)
    code = getattr(module, name)
    if not callable(code):
        raise JobError(f"{target}: expected a class or a function, found {type(code).__name__} {code!r:.80}.", stage)
    return code


def _find_anew(target: str) -> None:
    """Let imports look again, also in the folders of the target."""
    put_last(folders_of(target))
    importlib.invalidate_caches()


def _join_ray() -> None:
    """Connect this process to the run's Ray and its named actors, if user code has imported Ray.

    A model's own process is not started by Ray. It has this variable if its run uses Ray.
    """
    ray, namespace = sys.modules.get("ray"), os.environ.get("OVERNIGHT_RAY_NAMESPACE")
    if ray and namespace and not ray.is_initialized():
        ray.init(namespace=namespace, log_to_driver=False, logging_level="ERROR")


def made(target: str, code: Any, kwargs: Mapping[str, Any], stage: str, verb: str = "__init__ raised") -> Any:
    """Call the user's class or function `code`, which the job file names `target`, with `kwargs`.

    Raise `JobError` if it raises, with the exception, its line, and what to do. `verb` precedes the exception.
    """
    try:
        return code(**kwargs)
    except OvernightError:
        raise
    except (Exception, SystemExit) as error:
        advice = "Correct the code, or kwargs"
        if isinstance(error, TypeError) and error.__traceback__ and not error.__traceback__.tb_next:  # of the call
            advice = f"{_call_and_signature(code, kwargs)}Correct kwargs"
        problem = f"{verb} {described(error, code.__module__)}. {advice} in the job file."
        raise JobError(f"{target}: {problem}{user_frames.quoted(error)}", stage) from error


def _call_and_signature(code: Any, kwargs: Mapping[str, Any]) -> str:
    try:
        return f"It takes {inspect.signature(code)}, and kwargs gives {', '.join(kwargs) or 'nothing'}. "
    except (TypeError, ValueError):  # for a class in C
        return ""


def fingerprint(target: str, stage: str | None = None) -> dict[str, str]:
    """Return file name -> sha256 of the target's module and of the local modules that it imports. No code runs.

    Imports inside functions count. Data files and imports by a computed name are left out.
    """
    module_name = target.partition(":")[0]
    _find_anew(target)
    if _source(module_name) is None:
        raise not_found(target, stage)
    hashes, pending, history = {}, [module_name], set()
    while pending:
        name = pending.pop()
        path = None if name in history else _source(name)
        history.add(name)
        if path is None:
            continue
        relative = name.replace(".", "/") + (f"/{path.name}" if path.stem == "__init__" else path.suffix)
        is_local = any(path.resolve() == Path(folder, relative).resolve() for folder in folders_of(target))
        if is_local or name == module_name:
            hashes[relative] = hashlib.sha256(path.read_bytes()).hexdigest()
        if is_local:
            pending.extend(_imports(path, name))
            pending.append(name.rpartition(".")[0])
    return dict(sorted(hashes.items()))


def described(error: BaseException, module_name: str) -> str:
    """Return an error as `ValueError: bad (steps.py, line 12)`, with its innermost line in the module."""
    source = str(_source(module_name))
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source]
    line = f" ({Path(source).name}, line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {error}{line}"


def name_missing(target: str, public: list[str], stage: str) -> JobError:
    """Return the error for a module that lacks the name of `target`; it suggests some of its `public` names."""
    module_name, _, name = target.partition(":")
    names = difflib.get_close_matches(name, public, n=3, cutoff=0.5) or public[:8]
    return JobError(
        f"{target}: expected {name} in {module_name}, found {', '.join(names) or 'nothing'}. Correct the name.", stage
    )


def not_found(target: str, stage: str | None) -> JobError:
    """Return the error for a `target` (`module:Name`) whose module does not exist."""
    folder = folder_of(target)
    beside = f" or beside the job file in {folder.path}" if folder else ""
    return JobError(
        f"{target}: expected a module {target.partition(':')[0]}, installed, in the working directory {os.getcwd()}"
        f"{beside}, found none. Correct the name, or put the file beside the job file.",
        stage,
    )


def source_of(module_name: str, target: str = "") -> Path | None:
    """Return the file that an import of `module_name` would run, also beside the job file of `target`. No code runs."""
    _find_anew(target)
    return _source(module_name)


def _source(module_name: str) -> Path | None:
    """Return the file that importing `module_name` would run. Unlike find_spec, it runs no parent package."""
    first, *parts = module_name.split(".")
    finders = (finder.find_spec(first, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    spec = next(filter(None, finders), None) if first else None
    for part in parts:  # by its last name alone: for a full name the finder needs imported parents
        if spec is None or not spec.submodule_search_locations:
            return None
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
    if spec is None or not spec.has_location or not spec.origin:
        return None
    return Path(spec.origin)


def _imports(path: Path, module_name: str) -> Iterator[str]:
    """Yield the names of modules that the source may import. Some are attributes, for which no file exists."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # importing it reports the error
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (base := imported_module(node, path, module_name)):
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imported_module(node: ast.ImportFrom, path: Path, module_name: str) -> str | None:
    """Return the full name of the module that a `from ... import` of this module, in the file `path`, reads.

    Return None for a module beyond the top-level package: its import reports the error.
    """
    package = module_name if path.stem == "__init__" else module_name.rpartition(".")[0]
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:
        return None
