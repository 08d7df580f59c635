"""What `overnight docs` prints: pages, commands, names of the Python API, and the keys and kinds of a job file."""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from overnight.cli.reference.job_keys import job_keys, kind_example
from overnight.cli.reference.job_pages import SECTIONS, kinds
from overnight.cli.reference.pages import title

# The pages of names, each below a heading, and what precedes the heading.
PAGES_OF_NAMES = {"reference/command-line": "", "reference/python": "", "reference/extend": "extend."}
FOLDERS = {"": "Begin", "how-to": "How-to", "operations": "Operations", "explanations": "Explanations"}

FEW = 3


@dataclass(frozen=True)
class Topic:
    """A name that `overnight docs` takes, a line about it, and the function that returns its Markdown."""

    name: str
    about: str
    text: Callable[[], str]


def all_topics(pages: dict[str, str]) -> list[Topic]:
    """Return the topics. Of two with names of the same length, the earlier one is what a word means."""
    return [*_of_headings(pages), *_of_pages(pages), *_of_kinds(pages), *_of_keys()]


def matching(name: str, topics: list[Topic]) -> list[Topic]:
    """Return the topics of a name, the best one first. A part of a name, such as `batch_size`, has several.

    Numbers are left out, so `inference.0.batch_size` finds what `--set` names. `exit codes` is `exit-codes`.
    """
    matches = [topic for topic in topics if _has(_parts(topic.name), _parts(name))]
    return sorted(matches, key=lambda topic: (not is_named(topic, name), len(_parts(topic.name))))


def is_named(topic: Topic, name: str) -> bool:
    """Return whether a name is the topic's whole name."""
    return _parts(topic.name) == _parts(name)


def is_clear(topics: list[Topic]) -> bool:
    """Return whether the first of some topics is what their name means: the others are few, or of its section."""
    section = topics[0].name.partition(".")[0]
    return len(topics) <= FEW or all(topic.name.startswith(f"{section}.") for topic in topics)


def nearest(name: str, topics: list[Topic]) -> list[str]:
    """Return the names that are spelled most like a name, or whose last part is."""
    lasts = {_parts(topic.name)[-1]: topic.name for topic in reversed(topics)}
    names = difflib.get_close_matches(name, [topic.name for topic in topics], n=3, cutoff=0.75)
    words = difflib.get_close_matches(["", *_parts(name.rpartition(" ")[2])][-1], lasts, n=3, cutoff=0.75)
    return list(dict.fromkeys([*names, *map(lasts.__getitem__, words)]))


def mentions(name: str, pages: dict[str, str]) -> list[str]:
    """Return the names of the pages that have all words of a name, those with its rarest word most often first."""
    words = re.split(r"[. ]+", name.lower())
    counts = Counter[str]()
    for page, text in pages.items():
        counts[page] = min(map(text.lower().count, words))
    return list(dict((+counts).most_common()))


def contents(pages: dict[str, str]) -> str:
    """Return the list of all pages as Markdown."""
    lines = ["# Pages", "", "`overnight docs NAME` prints a page, a key, a command or a name of the Python API:", ""]
    lines += ["    overnight docs how-to/chat", "    overnight docs inference.image_embedding.batch_size"]
    lines += ["    overnight docs backfill", "    overnight docs overnight.run", ""]
    for folder, heading in {**FOLDERS, "reference": "Reference"}.items():
        lines += [f"## {heading}", "", "| page | title |", "| --- | --- |"]
        for name, text in pages.items():
            if name.rpartition("/")[0].partition("/")[0] == folder:
                lines += [f"| `{name}` | {title(text)} |"]
        lines += [""]
    return "\n".join(lines)


def _parts(name: str) -> list[str]:
    words = re.sub(r"\.md$", "", name.strip().lower().removeprefix("docs/").removeprefix("overnight "))
    return [part for part in re.split(r"[./]", re.sub("[ -]", "_", words)) if part and not part.isdigit()]


def _has(parts: list[str], some: list[str]) -> bool:
    """Return whether parts end with the last of some, and have the others before it, in their order."""
    ahead = iter(parts)
    return bool(some) and parts[-1] == some[-1] and all(part in ahead for part in some)


def _of_headings(pages: dict[str, str]) -> Iterator[Topic]:
    for page, prefix in PAGES_OF_NAMES.items():
        for section in re.split(r"^##+ ", pages[page], flags=re.MULTILINE)[1:]:
            name, _, text = section.partition("\n")
            about = re.sub(r"```\w*", "", text).strip().partition("\n")[0]
            yield Topic(prefix + name.removeprefix("overnight "), about, partial(str, f"# {section}"))


def _of_pages(pages: dict[str, str]) -> Iterator[Topic]:
    for name, text in pages.items():
        yield Topic(name, title(text), partial(str, text))
        if name.startswith("reference/job-file/"):
            yield Topic(name.removeprefix("reference/job-file/"), title(text), partial(str, text))
        elif name.endswith("/index"):
            yield Topic(name.removesuffix("/index"), title(text), partial(str, text))


def _of_kinds(pages: dict[str, str]) -> Iterator[Topic]:
    for section in SECTIONS:
        page = pages[f"reference/job-file/{section}"]
        for kind in kinds(section):
            text = re.split(r"^## ", page.partition(f"\n## {kind}\n")[2], maxsplit=1, flags=re.MULTILINE)[0].strip()
            yield Topic(f"{section}.{kind}", text.partition("\n")[0], partial(_kind_page, section, kind, text))


def _kind_page(section: str, kind: str, text: str) -> str:
    lines = [f"# {section}: kind {kind}", "", text, ""]
    common = ", ".join(key.path[0] for key in job_keys() if key.section == section and not key.kind)
    if common:
        lines += [f"It also has the keys of all kinds, see `overnight docs {section}`: {common}.", ""]
    if example := kind_example(section, kind):
        lines += ["```yaml", example, "```"]
    return "\n".join(lines)


def _of_keys() -> Iterator[Topic]:
    for key in job_keys():
        yield Topic(key.name, key.words, key.page)
