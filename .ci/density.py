"""Print how dense the product's code is, by room: `density.py [ROOM]`.

Each figure but the last is a count per 1,000 lines of code (no docstrings, comments or blank lines).
"""

import ast
import io
import re
import statistics
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from size import PRODUCT, ROOT, room, tracked_files

MAX_COLUMNS = 100
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PARTICIPLE_OR_PRONOUN = re.compile(
    r"(?:.*_)?(?:[a-z]{2,}ed|found|told|made|known|left|done|given|taken|seen|kept|held|sent|written|read_back|"
    r"shown|gone|said|meant|built|drawn|begun|chosen|broken|lost|put_off|run_out)"
    r"|(?:one|ones|it|its|this|that|these|those|who|whom|whose|what|which|why|where|how|they|them|each|all|any|"
    r"other|others|both|none|mine|theirs|here|there|place|rest)"
)
# Words that end like a participle and are nouns.
NOUNS = frozenset({"seed", "speed", "feed", "need", "embed", "bed", "shed", "indeed"})


@dataclass
class Counts:
    """What was counted in some files."""

    files: int = 0
    lines: int = 0
    code: int = 0
    docstrings: int = 0
    comments: int = 0
    blank: int = 0
    conditionals: int = 0
    comprehensions: int = 0
    long_lines: int = 0
    names: Counter[str] = field(default_factory=Counter)
    lengths: list[int] = field(default_factory=list)

    def add(self, other: "Counts") -> None:
        """Add the counts of other files."""
        for name, value in vars(other).items():
            if isinstance(value, Counter):
                self.names.update(value)
            else:
                setattr(self, name, getattr(self, name) + value)

    @property
    def named_badly(self) -> Counter[str]:
        """Return the local names that are participles or pronouns, with how often each is bound."""
        return Counter({name: count for name, count in self.names.items() if is_participle_or_pronoun(name)})


def is_participle_or_pronoun(name: str) -> bool:
    """Return whether a name is a participle or a pronoun, so that it does not name what it holds."""
    bare = name.strip("_")
    return bare.rpartition("_")[2] not in NOUNS and PARTICIPLE_OR_PRONOUN.fullmatch(bare) is not None


def docstring_lines(tree: ast.AST) -> set[int]:
    """Return the numbers of the lines that docstrings take."""
    numbers = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and ast.get_docstring(node) is not None:
            text = node.body[0]
            numbers.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return numbers


def comment_lines(source: str) -> set[int]:
    """Return the numbers of the lines that hold only a comment."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT and token.line.lstrip()[0] == "#"}


def local_names(function: ast.AST) -> list[str]:
    """Return the names that a function binds itself, its parameters and its inner functions left out."""
    names = []
    for node in ast.iter_child_nodes(function):
        if isinstance(node, FUNCTIONS):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        names += local_names(node)
    return names


def count(file: Path) -> Counts:
    """Return the counts of one file."""
    source = file.read_text()
    lines, tree = source.splitlines(), ast.parse(source)
    docstrings, comments = docstring_lines(tree), comment_lines(source)
    counts = Counts(files=1, lines=len(lines), docstrings=len(docstrings), comments=len(comments))
    counts.blank = sum(not line.strip() for number, line in enumerate(lines, 1) if number not in docstrings)
    counts.code = counts.lines - counts.docstrings - counts.comments - counts.blank
    for number, line in enumerate(lines, 1):
        counts.long_lines += len(line) > MAX_COLUMNS and number not in docstrings | comments
    for node in ast.walk(tree):
        counts.conditionals += isinstance(node, ast.IfExp)
        counts.comprehensions += isinstance(node, COMPREHENSIONS)
        if isinstance(node, FUNCTIONS):
            counts.lengths.append((node.end_lineno or node.lineno) - node.lineno + 1)
            counts.names.update(local_names(node))
    return counts


def product_files() -> list[Path]:
    """Return the product's files of Python, relative to the root."""
    return [file for file in tracked_files((".py",)) if file.parts[0] in PRODUCT]


def main(only: str) -> None:
    rooms: dict[str, Counts] = {}
    product = Counts()
    for file in product_files():
        if file.as_posix().startswith(only):
            counts = count(ROOT / file)
            rooms.setdefault(room(file), Counts()).add(counts)
            product.add(counts)
    print(f"{'room':20}{'files':>6}{'lines':>7}{'code':>7}{'docs':>6}{'comm':>6}{'blank':>6}", end="")
    print(f"{'if-else':>8}{'compr':>7}{'long':>6}{'names':>7}{'median':>7}{'max':>5}")
    for name, counts in [*sorted(rooms.items()), ("all", product)]:
        share = 1000 / max(counts.code, 1)
        names = 100 * counts.named_badly.total() / max(counts.names.total(), 1)
        print(f"{name:20}{counts.files:6}{counts.lines:7,}{counts.code:7,}{counts.docstrings:6,}", end="")
        print(f"{counts.comments:6,}{counts.blank:6,}{counts.conditionals * share:8.0f}", end="")
        print(f"{counts.comprehensions * share:7.0f}{counts.long_lines * share:6.0f}{names:6.1f}%", end="")
        print(f"{statistics.median(counts.lengths or [0]):7.0f}{max(counts.lengths or [0]):5}")
    print("most bound:", ", ".join(f"{name} {count}" for name, count in product.named_badly.most_common(40)))


if __name__ == "__main__":
    main(*sys.argv[1:2] or [""])
