"""`overnight init`: prompt on a terminal for every answer that no option gives; `init_templates.py` writes the files.

Without a terminal, every answer that has no default must be an option.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error
from overnight.tasks.errors import JobError

if TYPE_CHECKING:
    from overnight.cli.init_templates import Answers


@click.command(epilog=EXIT_STATUS)
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option("--path", metavar="P", help="The inputs: a folder or a URI, with {partition} for the day.")
@click.option("--source", metavar="KIND", help="The kind of the inputs; default: the kind of the first file.")
@click.option("--work", metavar="KIND", help="The work on each row: the kind of a model, python, or none.")
@click.option("--model", metavar="M", help="A name on the Hugging Face Hub or a folder; default: a common model.")
@click.option("--text-column", metavar="C", help="The column with the text, if the work reads texts.")
@click.option("--name", metavar="N", help="The job's name; default: the name of the folder.")
def init(folder: Path, **given: str | None) -> None:
    """Write a job file, and a model to fill in if you bring your own.

    On a terminal, init prompts for every answer that you do not give as an option. It overwrites no file.
    """
    from overnight.cli import init_templates

    with exit_on_error():
        answers = prompt_for_answers(folder, given)
        files = init_templates.create(answers)
    for file in files:
        click.echo(f"wrote {file}")
    click.echo("Next:\n  " + "\n  ".join(init_templates.next_commands(answers, files)))


def prompt_for_answers(folder: Path, given: Mapping[str, str | None]) -> "Answers":
    """Return all answers: from options, otherwise from prompts. Raise `JobError` for an answer that is not valid."""
    from overnight.cli.init_templates import (
        Answers,
        default_name,
        find_source,
        needs_column_name,
        offered_models,
        source_kinds,
        task_choices,
    )

    path = given["path"] or _asked(
        "path", "Where are the inputs? A folder or a URI; {partition} is replaced by the day"
    )
    kinds = list(source_kinds())
    source = given["source"] or find_source(path) or _asked("source", "What kind are the inputs?", kinds)
    _one_of("source", source, kinds)
    works = task_choices(source)
    if not given["work"] and sys.stdin.isatty():
        click.echo("\n".join(f"  {work:<22}{words}" for work, words in works.items()))
    work = given["work"] or _asked("work", "Which work does each row need?", list(works))
    _one_of("work", work, list(works))
    column = given["text_column"] or ""
    if not column and needs_column_name(source, work):
        column = _asked("text-column", "Which column holds the text?", default="text")
    offer = offered_models().get(work)
    model = given["model"] or (_asked("model", "Which model?", default=offer.model) if offer else "")
    return Answers(folder, given["name"] or default_name(folder), path, source, work, model, column)


def _asked(option: str, question: str, choices: list[str] | None = None, default: str | None = None) -> str:
    if not sys.stdin.isatty():
        if default is not None:
            return default
        among = f", one of {', '.join(choices)}" if choices else ""
        raise JobError(f"expected --{option}{among}, found no such option and no terminal for a prompt. {question}")
    kind = click.Choice(choices) if choices else str
    return str(click.prompt(question, type=kind, default=default, err=True))


def _one_of(option: str, found: str, choices: list[str]) -> None:
    if found not in choices:
        raise JobError(f"--{option} {found}: expected one of {', '.join(choices)}.")
