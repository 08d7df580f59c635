"""Docstrings, comments, messages and pages keep to the words of plain English.

The word list has only words and phrases that are wrong wherever they stand. A reader finds the other faults.
"""

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = ["tasks", "flows", "overnight", "demo", ".ci", "benchmarks", "deployments"]
# What `docs/conf.py` writes from docstrings and messages, which are checked in the code.
GENERATED = {
    "docs/changelog.md",
    "docs/reference/command-line.md",
    "docs/reference/extend.md",
    "docs/reference/python.md",
}
PAGES = ["README.md", "CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md"] + [
    page
    for page in sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    if page not in GENERATED
    and (not page.startswith("docs/reference/job-file/") or page == "docs/reference/job-file/index.md")
    and not page.startswith("docs/_")
]

# A pattern of whole words -> what to write instead.
WORDS = {
    r"nobody|somebody|someone|whoever|whom|whomever": "the name of the component, or `you`",
    r"he|him|his|she": "the name of the component",
    r"a person|persons": "a user",
    r"tells?|told|telling": "returns, reports, shows, or raises",
    r"says?|said|saying": "returns, reports, shows, or raises",
    r"asks?|asked|asking": "requests, requires, or calls",
    r"(?<!by )hands?|handed|handing": "passes, or returns",
    r"wants?|wanted": "needs, or requires",
    r"forgets?|forgot|forgotten": "drops, or removes",
    r"knows? nothing": "does not use",
    r"anew|afresh": "again",
    r"at once": "immediately, or at a time",
    r"for ever": "forever",
    r"so many|so much|so long as": "this number of, this amount of, or while",
    r"of which|of whom|what of it|those that": "the noun",
    r"(?<!there )(?:is|are|was|were) (?-i:none)": "not, or the noun",
    r"(?<!there )(?<!there that )(?:is|are) no (?!longer|more|less|slower)": "is not",
    r"lies?|lay": "is",
    r"stands?(?!-ins?\b)|stood": "is",
    r"is to be|are to be": "must be",
    r"all the same": "too, or still",
    r"does without|do without": "does not need",
    r"(?<!something )(?<!nothing )(?<!anything )else": "otherwise",
    r"a (?:row|second|minute|file|worker|line|block|request|batch|partition) each": "one per row, second, ...",
}
WRONG = re.compile("|".join(rf"\b(?P<w{number}>{pattern})\b" for number, pattern in enumerate(WORDS)), re.IGNORECASE)

# A document says something.
RIGHT_IN_PAGES = {"say", "says", "said"}

# File and text -> why the word is right there.
ALLOWED = {
    ("tasks/rows/expressions/syntax.py", "case when condition then a else b end"): "this is SQL",
    ("demo/workload_language.py", "{% else %}"): "this is a template of Jinja",
    ("benchmarks/decoding.py", "(He et al. 2015"): "this is the name of an author",
}

CODE = re.compile(r"``[^`]*``|`[^`]*`|\b[A-Z]{2,}\b")


@pytest.mark.parametrize("place", [*FOLDERS, *PAGES])
def test_no_text_of_the_code_and_no_page_has_a_word_of_the_list(place: str) -> None:
    is_page = place.endswith(".md")
    texts, right = (paragraphs_of, RIGHT_IN_PAGES) if is_page else (texts_of, set[str]())
    found = [
        problem
        for path in ([ROOT / place] if is_page else sorted((ROOT / place).rglob("*.py")))
        for line, text in texts(path.read_text(encoding="utf-8"))
        for problem in problems(path.relative_to(ROOT).as_posix(), line, text, right)
    ]
    assert not found, "\n".join(found)


def problems(path: str, line: int, text: str, right: Collection[str] = ()) -> Iterator[str]:
    """Yield a sentence for each word of the list in a text. Code in backquotes does not count."""
    text = " ".join(CODE.sub("", text).split())
    for file, part in ALLOWED:
        text = text.replace(part, "") if file == path else text
    for found in WRONG.finditer(text):
        if found[0].lower() not in right:
            better = list(WORDS.values())[int(str(found.lastgroup)[1:])]
            near = text[max(found.start() - 50, 0) : found.end() + 50]
            yield f"{path}:{line}: {found[0]!r}, write {better}: {near}"


def paragraphs_of(page: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each paragraph, because a phrase may go on in the next line. Fenced code is left out."""
    text = re.sub(r"```.*?```", lambda found: "\n" * found[0].count("\n"), page, flags=re.DOTALL)
    for found in re.finditer(r"(?:.*\S.*\n?)+", text):
        yield text.count("\n", 0, found.start()) + 1, found[0]


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment, and of each string of four words or more, with its values left out."""
    last, comment = 0, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            goes_on = token.start[0] == last + 1 and token.line.lstrip().startswith("#")
            if comment and not goes_on:
                yield last, comment
                comment = ""
            last, comment = token.start[0], f"{comment} {token.string.lstrip('# ')}"
    yield last, comment
    for node in ast.walk(ast.parse(source)):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [part.value if isinstance(part, ast.Constant) else "{}" for part in parts]
        text = "".join(text for text in texts if isinstance(text, str))
        if len(text.split()) > 3:
            yield getattr(node, "lineno", 0), text
