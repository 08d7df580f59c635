"""The pages of the documentation as Markdown: what docs/ has, and what follows from the code.

`overnight docs` prints them. The site's conf.py writes what `written_pages` returns before Sphinx reads the folder; git
ignores them. They are files, not directives, because llms-full.txt is made of the pages' files.
"""

import posixpath
import re
from collections.abc import Collection
from pathlib import Path

from overnight.cli.reference.api_pages import command_page, extend_page, python_page
from overnight.cli.reference.job_pages import job_pages

SHIPPED = Path(__file__).parent / "shipped"  # in a checkout links to docs/ and CHANGELOG.md; the wheel has the files
HAND_WRITTEN = SHIPPED / "docs"
PYTHON_API = "reference/python"
FENCE = re.compile(r"^```.*?^```\n?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[((?:[^\]\[`]|`[^`]*`)*)\]\(<?([^)\s>]+)>?\)")


def written_pages(with_api: bool = True) -> dict[str, str]:
    """Return the Markdown of the pages that follow from the code, by their name below docs/, without `.md`.

    The page of the Python API imports Prefect and Ray, which takes seconds. Without it, only its title is there.
    """
    from overnight.cli.main import main

    return job_pages() | {
        "reference/command-line": "\n".join(command_page(main)),
        "reference/extend": "\n".join(extend_page()),
        PYTHON_API: "\n".join(python_page()) if with_api else "# The Python API\n",
        "changelog": (SHIPPED / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "]("),
    }


def all_pages(with_api: bool) -> dict[str, str]:
    """Return the Markdown of every page by its name, for a terminal. `with_api` is that of `written_pages`."""
    texts = {}
    for file in sorted(HAND_WRITTEN.rglob("*.md")):
        texts[file.relative_to(HAND_WRITTEN).with_suffix("").as_posix()] = file.read_text(encoding="utf-8")
    texts |= written_pages(with_api)
    return {name: for_a_terminal(name, text, texts) for name, text in texts.items()}


def title(text: str) -> str:
    """Return the first heading of a page."""
    return text.removeprefix("# ").partition("\n")[0]


def for_a_terminal(name: str, text: str, names: Collection[str]) -> str:
    """Return a page's text without what only a browser shows. Links become text, with the names of pages."""
    folder = posixpath.dirname(name)

    def without_link(link: re.Match[str]) -> str:
        words, target = link.groups()
        if ":" in target:
            return link[0]
        page = posixpath.normpath(posixpath.join(folder, target.partition("#")[0])).removesuffix(".md")
        return f"{words} *({page})*" if page in names and page != name else words

    parts = re.split(f"({FENCE.pattern})", text, flags=FENCE.flags)
    return "".join(_block(part) if part.startswith("```") else LINK.sub(without_link, part) for part in parts)


def _block(text: str) -> str:
    """Return a block of code as it is, and a directive of the site as what a terminal can show of it."""
    directive = re.match(r"```\{(\w+)\} *(.*)", text)
    if not directive:
        return text
    name, argument = directive.groups()
    return f"See {argument.removeprefix('../../')} in the repository.\n" if name == "literalinclude" else ""
