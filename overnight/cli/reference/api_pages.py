"""The pages of the command line, of the Python API and of the classes to extend, as Markdown, from their docstrings."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import click

import overnight
from overnight import extend
from overnight.cli.reference.key_tables import first_paragraph, one_line

COLUMNS = 92  # of the help of a command: a block of code on the site shows as many


def command_page(group: click.Group) -> Iterator[str]:
    yield from [
        "# Command line",
        "",
        "Each command prints this for `--help`. See also [exit codes](exit-codes.md).",
        "",
    ]
    context = click.Context(
        group, info_name="overnight", max_content_width=COLUMNS, terminal_width=COLUMNS, **group.context_settings
    )
    yield from ["```text", group.get_help(context), "```", ""]
    for name, command in sorted(group.commands.items()):
        inner = click.Context(command, context, info_name=name, max_content_width=COLUMNS, terminal_width=COLUMNS)
        yield from [f"## overnight {name}", "", "```text", command.get_help(inner), "```", ""]


def extend_page() -> Iterator[str]:
    yield from ["# Classes for your own leaves", "", "`overnight.extend` has these names, and they stay."]
    yield from ["A leaf inherits from one of the classes and has the methods that are listed below it.", ""]
    yield from ["[A job and a model of your own](../how-to/extension.md) has an example.", ""]
    for name in extend.__all__:
        thing = getattr(extend, name)
        if inspect.isclass(thing):
            yield from [f"## {name}", "", first_paragraph(thing), ""]
            for method in sorted(getattr(thing, "__abstractmethods__", ())):
                function = getattr(thing, method)
                arguments = ", ".join(list(inspect.signature(function).parameters)[1:])
                yield f"- `{method}({arguments})`: {one_line((function.__doc__ or '').split(chr(10) * 2)[0])}"
            yield ""


def python_page() -> Iterator[str]:
    yield from ["# The Python API", "", "`import overnight` has these names, and they stay.", ""]
    yield from ["[From Python](../how-to/from-python.md) has examples.", ""]
    for name in ("run", "backfill", "undo", "status", "preview", "search", "verify", "load"):
        yield from _documented(f"overnight.{name}", getattr(overnight, name), "##")
    yield from ["## overnight.Receipt", "", *_sections(overnight.Receipt), ""]
    for name, member in vars(overnight.Receipt).items():
        if not name.startswith("_"):
            yield from _documented(f"receipt.{name}", member, "###")
    keys = ", ".join(f"`{key}`" for key in overnight.Job.model_fields)
    yield from ["## overnight.Job", "", first_paragraph(overnight.Job), ""]
    yield from [f"Its arguments are [the keys of a job file](job-file/index.md): {keys}.", ""]
    yield from _documented("job.to_yaml", overnight.Job.to_yaml, "###")
    yield from ["## The classes of a job", "", "Their settings are those of the job file.", ""]
    yield from ["| module | classes |", "| --- | --- |"]
    for module in ("sources", "shuffles", "steps", "models", "sinks"):
        names = ", ".join(f"`{name}`" for name in getattr(overnight, module).__all__)
        yield f"| `overnight.{module}` | {names} |"
    yield from ["| `overnight` | `Job`, `Checks`, `Schedule`, `Retries` |", "", "## Errors", ""]
    for name in overnight.__all__:
        error = getattr(overnight, name)
        if inspect.isclass(error) and issubclass(error, Exception):
            yield f"- `overnight.{name}`: {first_paragraph(error)}"


def _documented(name: str, thing: Any, heading: str) -> Iterator[str]:
    if isinstance(thing, property):
        yield from [f"{heading} {name}", "", *_sections(thing), ""]
        return
    signature = inspect.signature(thing)
    arguments = (argument.replace(annotation=argument.empty) for argument in signature.parameters.values())
    short = signature.replace(
        parameters=[argument for argument in arguments if argument.name != "self"], return_annotation=signature.empty
    )
    yield from [f"{heading} {name}", "", f"`{name}{short}`", "", *_sections(thing), ""]


def _sections(thing: Any) -> Iterator[str]:
    """Yield a docstring's paragraphs, and its arguments and errors as lists."""
    for paragraph in inspect.cleandoc(thing.__doc__ or "").split("\n\n"):
        title, _, body = paragraph.partition(":\n")
        if title not in ("Args", "Returns", "Raises"):
            yield from [one_line(paragraph), ""]
            continue
        entries = re.split(r"\n(?=\S)", inspect.cleandoc(body))
        yield from [f"{title}:", ""]
        for entry in entries:
            word, colon, text = entry.partition(": ")
            has_name = colon and title != "Returns"
            yield f"- `{word}`: {one_line(text)}" if has_name else one_line(entry)
        yield ""
