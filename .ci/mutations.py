"""Change the code at random places, one at a time, and count the changes that the tests detect.

    python .ci/mutations.py changed [--count 20] [--since COMMIT] [--seconds 240]
    python .ci/mutations.py whole --count 60 --seed 7 [--wide] > outcome.json

`changed` draws from the lines that differ from `COMMIT`, with HEAD as the seed. By default that is the newest
`LANDING` commits, because a fresh clone does not know what landed together. `whole` draws from the whole product. Both
run tests in forked processes: the module's mirrored test file, the files that import it, the contract suites that reach
it, then the tests of its users. Tests that start Ray or a server run last, and only those of the first file. `--wide`
runs those of all files.

The file `equivalent_mutations.txt` has the changes that alter no behaviour, with reasons. Of the other changes at least
85 % should be detected. The command fails below that share, or below the one that `--at-least` gives.
"""

import argparse
import ast
import contextlib
import importlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("equivalent_mutations.txt")
PRODUCT = ("flows", "overnight", "tasks")
LANDING = 30  # commits of the first-parent history
PROCESSES = 2
REQUIRED = 0.85
LOGS = re.compile(r"^_?log\.|get_run_logger\(\)\.")  # calls that only write to a log
SECONDS_A_TEST, SECONDS_A_MUTATION, SECONDS_WIDE = 30, 60, 420
# A test that uses one of these fixtures starts Ray, a server or the demo.
HEAVY = {
    "ray_session",
    "prefect_api",
    "s3",
    "google",
    "azure",
    "postgres",
    "demo",
    "one_thread",
    "run_job",
    "overnight",
}
# Each forked process has these: their import takes seconds.
PRELOADED = (
    "pytest",
    "hypothesis",
    "numpy",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pydantic",
    "ray.data",
    "prefect",
)

Mutation = dict[str, str]
SWAPS: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.And: "or", ast.Or: "and",
}  # fmt: skip
TOKENS: dict[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.And: "and", ast.Or: "or",
}  # fmt: skip


def mutations(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line number, the line, and the changed line. A change stays within one line."""
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        for line, start, end, new in _changes(node, lines):
            text = lines[line - 1]
            yield line, text, text[:start] + new + text[end:]


def _changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, int, int, str]]:
    """Yield the line number, the first and last column, and the new text."""
    if isinstance(node, ast.Compare):
        pairs = list(zip([node.left, *node.comparators], node.ops, node.comparators, strict=False))
        operators = [(left, operator, right) for left, operator, right in pairs]
    elif isinstance(node, ast.BinOp):
        operators = [(node.left, node.op, node.right)]
    elif isinstance(node, ast.BoolOp):
        operators = [(left, node.op, right) for left, right in zip(node.values, node.values[1:], strict=False)]
    else:
        operators = []
    for left, operator, right in operators:
        if type(operator) in SWAPS and left.end_lineno == right.lineno:
            between = lines[right.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
            place = between.find(TOKENS[type(operator)])
            if place >= 0:
                start = len(lines[right.lineno - 1].encode()[: left.end_col_offset].decode()) + place
                yield right.lineno, start, start + len(TOKENS[type(operator)]), SWAPS[type(operator)]
    yield from _without_operators(node)


def _without_operators(node: ast.AST) -> Iterator[tuple[int, int, int, str]]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and node.lineno == node.operand.lineno:
        yield node.lineno, node.col_offset, node.operand.col_offset, ""
    if isinstance(node, ast.Constant) and node.lineno == node.end_lineno and node.end_col_offset is not None:
        if isinstance(node.value, bool):
            yield node.lineno, node.col_offset, node.end_col_offset, str(not node.value)
        elif isinstance(node.value, int):
            yield node.lineno, node.col_offset, node.end_col_offset, str(node.value + 1)
    if isinstance(node, ast.Return) and node.value is not None and node.lineno == node.end_lineno:
        yield node.lineno, node.value.col_offset, node.value.end_col_offset or 0, "None"
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if is_call and node.lineno == node.end_lineno and not LOGS.search(ast.unparse(node)):
        yield node.lineno, node.col_offset, node.end_col_offset or 0, "pass"


def product(root: Path) -> list[Path]:
    files = (file for folder in PRODUCT for file in root.glob(f"{folder}/**/*.py"))
    return sorted(file for file in files if not file.parent.is_symlink())


def changed_lines(since: str) -> dict[str, set[int]]:
    """Return the numbers of the product's lines that HEAD has and `since` has not, by file."""
    lines: dict[str, set[int]] = {}
    path = ""
    for line in git("diff", "--unified=0", "--no-renames", since, "HEAD", "--", *PRODUCT).splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ ").removeprefix("b/")
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines.setdefault(path, set()).update(range(first, first + count))
    return lines


def landing_base() -> str:
    """Return the commit before the newest `LANDING` ones, or the first commit of a shorter history."""
    return git("rev-list", "--first-parent", "-n", str(LANDING + 1), "HEAD").split()[-1]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def candidates(lines: dict[str, set[int]] | None) -> list[Mutation]:
    """Return all changes of the product, or of these lines: one per changed text, in lines that a file has once."""
    chosen: list[Mutation] = []
    for file in product(ROOT):
        path, source = str(file.relative_to(ROOT)), file.read_text()
        numbers = None if lines is None else lines.get(path, set())
        texts = source.splitlines()
        for number, line, changed in mutations(source) if numbers is None or numbers else ():
            if (numbers is None or number in numbers) and texts.count(line) == 1:
                chosen.append({"path": path, "line": line, "changed": changed})
    return chosen


def drawn(chosen: list[Mutation], count: int, seed: str) -> list[Mutation]:
    """Return `count` of the changes that are valid Python and not known as equivalent, at most one per line."""
    known = {line.split("  # ")[0] for line in EQUIVALENT.read_text().splitlines()}
    random.Random(seed).shuffle(chosen)
    sample: dict[tuple[str, str], Mutation] = {}
    for mutation in chosen:
        if len(sample) < count and described(mutation) not in known and _is_python(mutation):
            sample.setdefault((mutation["path"], mutation["line"]), mutation)
    return list(sample.values())


def described(mutation: Mutation) -> str:
    return f"{mutation['path']}: {mutation['line'].strip()} -> {mutation['changed'].strip()}"


def _is_python(mutation: Mutation) -> bool:
    source = (ROOT / mutation["path"]).read_text().replace(mutation["line"], mutation["changed"])
    try:
        compile(source, mutation["path"], "exec")
    except SyntaxError:
        return False
    return True


def test_files(root: Path, path: str) -> list[str]:
    """Return the test files that reach a module, the most likely to fail first."""
    module = _module(path)
    mirrored = root / "tests" / Path(path).with_name(f"test_{Path(path).name}")
    users = [_module(str(file.relative_to(root))) for file in product(root) if _imports(file, [module])]
    tests = sorted(root.glob("tests/**/test_*.py"), key=lambda file: file.stat().st_size)
    suites = {
        file.relative_to(root / "tests/contracts").parts[0]
        for file in root.glob("tests/contracts/*/**/*.py")
        if _imports(file, [module, *users])
    }
    files = [
        *([mirrored] if mirrored.is_file() else []),
        *(file for file in tests if file.stem == f"test_{Path(path).stem}" and _imports(file, [module])),
        *(file for file in tests if _imports(file, [module])),
        *(file for suite in sorted(suites) for file in sorted(root.glob(f"tests/contracts/{suite}/test_*.py"))),
        *(file for file in tests if _imports(file, users)),
    ]
    return list(dict.fromkeys(str(file.relative_to(root)) for file in files))


def _module(path: str) -> str:
    return f"overnight.{path.removeprefix('overnight/').removesuffix('.py').replace('/', '.')}"


def _imports(file: Path, modules: list[str]) -> bool:
    text = file.read_text()
    for module in modules:
        package, _, name = module.rpartition(".")
        if f"from {module} import" in text or f"import {module}" in text:
            return True
        if re.search(rf"from {re.escape(package)} import [^\n]*\b{name}\b", text):
            return True
    return False


class Light:
    """A pytest plugin that leaves out tests which start a Ray or a server, and ends a test that takes too long."""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if not HEAVY.intersection(getattr(item, "fixturenames", ()))]

    def pytest_runtest_setup(self) -> None:
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(SECONDS_A_TEST)

    def pytest_runtest_teardown(self) -> None:
        signal.alarm(0)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"a test took more than {SECONDS_A_TEST} s")


def prepare(folder: str) -> None:
    """Copy the checkout for this process, which forks the processes of the tests, and import the slow libraries."""
    copy = Path(folder) / str(os.getpid())
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".*venv*", ".demo", ".git"))
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy)  # for the processes that tests start in other folders
    os.environ["PREFECT_HOME"] = f"{copy}-prefect"
    sys.path.insert(0, str(copy))
    sys.dont_write_bytecode = True  # two changes within a second look the same to Python's cache
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def judge(mutation: Mutation, is_wide: bool, deadline: float) -> dict[str, Any] | None:
    """Run the tests of a change until one fails. Return the change with that file in `by`; None without time for it."""
    began, copy = time.monotonic(), Path.cwd()
    limit = min(began + (SECONDS_WIDE if is_wide else SECONDS_A_MUTATION), deadline)
    if limit - began < SECONDS_A_TEST:
        return None
    file = copy / mutation["path"]
    source = file.read_text()
    file.write_text(source.replace(mutation["line"], mutation["changed"], 1))
    try:
        by = _failing(test_files(copy, mutation["path"]), is_wide, limit)
    finally:
        file.write_text(source)
    return {**mutation, "by": by, "seconds": round(time.monotonic() - began)}


def _failing(tests: list[str], is_wide: bool, limit: float) -> str:
    """Return the first test file that fails: with its light tests, then `tests` (or only the first) with all tests."""
    runs = [*((test, [Light()]) for test in tests), *((test, []) for test in (tests if is_wide else tests[:1]))]
    for test, plugins in runs:
        if time.monotonic() < limit and _fails(test, plugins, limit):
            return test
    return ""


def _fails(test: str, plugins: list[Any], limit: float) -> bool:
    child = os.fork()
    if not child:
        _run_tests(test, plugins)
    while time.monotonic() < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            # 2: the collection failed. 5: no test was selected. A signal: the process crashed.
            return os.waitstatus_to_exitcode(status) not in (0, 5)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _run_tests(test: str, plugins: list[Any]) -> None:
    status = 3
    try:
        os.setsid()
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", "-m", "not chaos and not nightly"]
        status = int(pytest.main([*options, test], plugins=plugins))
    finally:
        os._exit(status)


def outcomes(sample: list[Mutation], is_wide: bool, seconds: float) -> list[dict[str, Any]]:
    """Return the outcomes of the changes for which there was time."""
    deadline = time.monotonic() + seconds
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder, fork.Pool(PROCESSES, prepare, (folder,)) as pool:
        pending = [pool.apply_async(judge, (mutation, is_wide, deadline)) for mutation in sample]
        results = []
        for result in pending:
            if outcome := result.get():
                results.append(outcome)
                mark = "detected" if outcome["by"] else "MISSED  "
                print(f"{mark} {outcome['seconds']:4d} s  {described(outcome)}", file=sys.stderr, flush=True)
        return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    changed = verbs.add_parser("changed")
    changed.add_argument("--count", type=int, default=20)
    changed.add_argument("--since", default=os.environ.get("MUTATIONS_SINCE", ""))
    changed.add_argument("--seconds", type=float, default=240)
    whole = verbs.add_parser("whole")
    whole.add_argument("--count", type=int, default=60)
    whole.add_argument("--seed", required=True)
    whole.add_argument("--seconds", type=float, default=3 * 3600)
    whole.add_argument("--wide", action="store_true")
    whole.add_argument("--only", nargs="+", default=[""], help="beginnings of the paths of files")
    for verb in (changed, whole):
        verb.add_argument("--at-least", type=float, default=REQUIRED, help="the share below which the command fails")
    given = parser.parse_args()
    if given.verb == "changed":
        sample = drawn(candidates(changed_lines(given.since or landing_base())), given.count, git("rev-parse", "HEAD"))
    else:
        chosen = [mutation for mutation in candidates(None) if mutation["path"].startswith(tuple(given.only))]
        sample = drawn(chosen, given.count, given.seed)
    results = outcomes(sample, given.verb == "whole" and given.wide, given.seconds)
    detected = sum(bool(outcome["by"]) for outcome in results)
    print(json.dumps({"detected": detected, "of": len(results), "drawn": len(sample), "each": results}, indent=1))
    print(f"{detected} of {len(results)} changes were detected; {len(sample)} were drawn", file=sys.stderr)
    if detected < given.at_least * len(results):
        print(
            f"expected at least {given.at_least:.0%}. Sharpen the tests of the missed lines. Add a change that alters "
            f"no behaviour, with its reason, to {EQUIVALENT.relative_to(ROOT)}.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
