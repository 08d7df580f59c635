"""Change the code at random places, one at a time, and count the changes that the tests detect.

    python .ci/mutations.py draw 60 --seed 1 [--also OTHER_CHECKOUT] > mutations.json
    python .ci/mutations.py run mutations.json CHECKOUT [--python PYTHON] > outcome.json

`draw` uses only lines that are the same in both checkouts, so that you can compare two suites. `run` changes a copy of
the checkout, and runs the tests that import the changed module: first the module's own test file, then the shortest
ones, until one fails or the time limit of a change ends.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SECONDS_A_FILE, SECONDS_A_MUTATION = 240, 420
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
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.lineno == node.end_lineno:
        yield node.lineno, node.col_offset, node.end_col_offset or 0, "pass"


def draw(count: int, seed: int, roots: list[Path]) -> list[dict[str, str]]:
    found = []
    for path in _code(roots[0]):
        relative = str(path.relative_to(roots[0]))
        others = [root / relative for root in roots[1:]]
        if not all(other.is_file() for other in others):
            continue
        texts = [file.read_text().splitlines() for file in (path, *others)]
        for _, line, changed in mutations(path.read_text()):
            if all(text.count(line) == 1 for text in texts) and _is_python(path, line, changed):
                found.append({"path": relative, "line": line, "changed": changed})
    return random.Random(seed).sample(found, count)


def _is_python(path: Path, line: str, changed: str) -> bool:
    try:
        compile(path.read_text().replace(line, changed), str(path), "exec")
    except SyntaxError:
        return False
    return True


def test_files(root: Path, path: str) -> list[str]:
    """Return the test files that import a module, directly or through its users: its own file first, then by size."""
    module = _module(path)
    name = module.rpartition(".")[2]
    own = [str(file.relative_to(root)) for file in root.glob(f"tests/**/test_{name}.py")]
    users = {module} | {_module(str(file.relative_to(root))) for file in _code(root) if _imports(file, module)}
    tests = [file for file in root.glob("tests/**/test_*.py") if any(_imports(file, user) for user in users)]
    by_size = sorted(tests, key=lambda file: file.stat().st_size)
    return list(dict.fromkeys([*own, *(str(file.relative_to(root)) for file in by_size)]))


def _code(root: Path) -> list[Path]:
    return sorted(file for folder in ("flows", "overnight/cli", "tasks") for file in root.glob(f"{folder}/**/*.py"))


def _module(path: str) -> str:
    return f"overnight.{path.removeprefix('overnight/').removesuffix('.py').replace('/', '.')}"


def _imports(file: Path, module: str) -> bool:
    package, _, name = module.rpartition(".")
    text = file.read_text()
    return f"from {module} import" in text or f"import {module}" in text or f"from {package} import {name}" in text


def run(drawn: list[dict[str, str]], checkout: Path, python: str) -> Iterator[dict[str, Any]]:
    """Yield each mutation with `found`, the failing test in `by`, and its seconds."""
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(checkout, copy, symlinks=True, ignore=shutil.ignore_patterns(".*venv*", ".demo", ".git"))
        for mutation in drawn:
            file, began = copy / mutation["path"], time.monotonic()
            whole = file.read_text()
            file.write_text(whole.replace(mutation["line"], mutation["changed"], 1))
            failed = ""
            for test in test_files(copy, mutation["path"]):
                left = SECONDS_A_MUTATION - (time.monotonic() - began)
                if failed or left <= 0:
                    break
                failed = _failing(copy, test, python, min(left, SECONDS_A_FILE))
            file.write_text(whole)
            outcome = {**mutation, "found": bool(failed), "by": failed, "seconds": round(time.monotonic() - began)}
            print(
                f"{'found  ' if failed else 'missed '} {mutation['path']}: {mutation['changed'].strip()}",
                file=sys.stderr,
            )
            yield outcome


def _failing(copy: Path, test: str, python: str, seconds: float) -> str:
    options = ("-x", "-q", "-p", "no:cacheprovider", "--no-header", "-m", "not chaos and not nightly")
    try:
        done = subprocess.run(
            [python, "-m", "pytest", *options, test],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},  # for the processes that tests start in other folders
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    if done.returncode not in (0, 1, 2, 5):  # pytest itself failed; 5: it selected no test
        raise SystemExit(done.stdout + done.stderr)
    return test if done.returncode in (1, 2) else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    drawing = verbs.add_parser("draw")
    drawing.add_argument("count", type=int)
    drawing.add_argument("--seed", type=int, default=1)
    drawing.add_argument("--also", type=Path, action="append", default=[])
    running = verbs.add_parser("run")
    running.add_argument("drawn", type=Path)
    running.add_argument("checkout", type=Path)
    running.add_argument("--python", default=sys.executable)
    given = parser.parse_args()
    if given.verb == "draw":
        print(json.dumps(draw(given.count, given.seed, [ROOT, *given.also]), indent=1))
        return
    outcomes = list(run(json.loads(given.drawn.read_text()), given.checkout.resolve(), given.python))
    print(json.dumps({"found": sum(one["found"] for one in outcomes), "of": len(outcomes), "each": outcomes}, indent=1))


if __name__ == "__main__":
    main()
