"""`overnight docs`: print the documentation in the terminal, without a network and without a checkout."""

from typing import TYPE_CHECKING

import click

from overnight.cli.command import EXIT_STATUS

if TYPE_CHECKING:
    from overnight.cli.reference.topics import Topic

MOST_OTHERS = 6


@click.command(epilog=EXIT_STATUS)
@click.argument("words", metavar="[PAGE|KEY|COMMAND]", nargs=-1)
def docs(words: tuple[str, ...]) -> None:
    """Print the documentation: a page, a key of the job file, a command.

    It also prints names of the Python API. Without a name, this lists the pages. Examples: how-to/chat, sink.parquet,
    inference.chat.user, batch_size, backfill, overnight.run. A name in parentheses is that of a page. A file or a
    pipe gets Markdown.
    """
    from overnight.cli.reference.pages import PYTHON_API, all_pages
    from overnight.cli.reference.topics import all_topics, contents, is_clear, is_named, matching

    name = " ".join(words)
    pages = all_pages(with_api=False)
    if not words:
        _print(contents(pages))
        return
    topics = all_topics(pages)
    matches = matching(name, topics)
    if not matches or matches[0].name == PYTHON_API:
        pages = all_pages(with_api=True)
        topics = all_topics(pages)
        matches = matching(name, topics)
    if not matches:
        raise click.UsageError(_unknown(name, topics, pages))
    first, *more = matches
    if not (is_named(first, name) or is_clear(matches)):
        rows = "\n".join(f"| `{topic.name}` | {topic.about} |" for topic in matches)
        _print(f"# {name}\n\n| name | description |\n| --- | --- |\n{rows}\n")
        return
    named = dict.fromkeys(topic.text().strip() for topic in matches if is_named(topic, name))
    text = "\n\n".join(named) or first.text().strip()  # `notify` is a command and a key
    names = [topic.name for topic in more if topic.text().strip() not in text]
    if names:
        names[MOST_OTHERS:] = ["..."] * (len(names) > MOST_OTHERS)
        text += f"\n\nAlso: {', '.join(names)}"
    _print(text)


def _unknown(name: str, topics: list["Topic"], pages: dict[str, str]) -> str:
    from overnight.cli.reference.topics import mentions, nearest

    sentences = [f"expected a page, a key, a command or a name of the API, found {name!r}."]
    if near := nearest(name, topics):
        sentences.append(f"Names like it: {', '.join(near)}.")
    if with_text := mentions(name, pages):
        sentences.append(f"Pages with this text: {', '.join(with_text[:MOST_OTHERS])}.")
    return " ".join([*sentences, "overnight docs lists the pages."])


def _print(text: str) -> None:
    """Print Markdown, formatted if stdout is a terminal."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    if console.is_terminal:
        console.print(Markdown(text, hyperlinks=False))
    else:
        click.echo(text)
