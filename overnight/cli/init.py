"""`overnight init`: look at the inputs, and prompt on a terminal for every answer that no option gives.

`init_templates.py` writes the files. Without a terminal, every answer that has no default must be an option.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from overnight.cli.command import EXIT_STATUS, exit_on_error
from overnight.tasks.errors import JobError

if TYPE_CHECKING:
    from overnight.cli.init_choices import Answers

TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


@click.command(epilog=EXIT_STATUS)
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option("--path", metavar="P", help="The inputs: a folder, a file or a URI, with {partition} for the day.")
@click.option("--source", metavar="KIND", help="The kind of the inputs; default: the kind of most files.")
@click.option(
    "--work", metavar="KIND", help="The work on each row: the kind of a model, a chain of models, python, or none."
)
@click.option(
    "--model",
    metavar="M",
    help="A name on the Hugging Face Hub or a folder; default: a common model. Of a chain, one per model, with commas.",
)
@click.option("--text-column", metavar="C", help="The column with the text; default: the column of the longest texts.")
@click.option("--name", metavar="N", help="The job's name; default: the name of the folder.")
@click.option(
    "--schedule",
    metavar="WHEN",
    help="When the job runs by itself: a time of each day, such as 02:30, or five cron fields in quotes.",
)
@click.option("--timezone", metavar="ZONE", help="The clock of --schedule, such as Europe/Berlin; default: UTC.")
def init(folder: Path, **given: str | None) -> None:
    """Write a job file for your inputs, and a model to fill in.

    Init reads a few KB of the inputs to find their kind, the form of a CSV file, and the columns with texts or images.
    On a terminal, init prompts for every answer that you do not give as an option. It overwrites no file.
    """
    from overnight.cli import init_templates

    os.environ.setdefault("OVERNIGHT_STORAGE_RETRY_SECONDS", "5")  # seconds, because the user waits
    with exit_on_error():
        answers = prompt_for_answers(folder, given)
        files = init_templates.create(answers)
    for file in files:
        click.echo(f"wrote {file}")
    commands = ["preview", "run"]
    if answers.cron:
        commands.append("deploy")
    lines = [f"overnight {command} {files[0].name}" for command in commands]
    if folder.resolve() != Path.cwd():
        lines.insert(0, f"cd {folder}")
    click.echo("\n  ".join(["Next:", *lines]))


def prompt_for_answers(folder: Path, given: Mapping[str, str | None]) -> "Answers":
    """Return all answers: the options in `given`, otherwise from prompts or, without a terminal, defaults.

    Raise `JobError` for an answer that is missing or not valid.
    """
    from overnight.cli.init_choices import Answers, column_of, is_table, offers, task_choices
    from overnight.cli.init_look import look
    from overnight.cli.init_rows import source_kinds

    cron = (given["schedule"] or "").strip()
    if time := TIME.fullmatch(cron):
        cron = f"{int(time[2])} {int(time[1])} * * *"
    if given["timezone"] and not (cron or "{partition}" in (given["path"] or "")):
        raise JobError(f"--timezone {given['timezone']}: expected --schedule with it, found none.")
    path = _answer("path", given, "Where are the inputs? A folder or a URI; {partition} is replaced by the day")
    kinds = list(source_kinds())
    if given["source"]:
        _answer("source", given, "", kinds)
    inputs = look(path, given["source"])
    for note in inputs.notes:
        click.echo(note, err=True)
    source = inputs.source or _answer("source", given, "What kind are the inputs?", kinds)
    works = task_choices(source, inputs)
    if not given["work"] and sys.stdin.isatty():
        click.echo("\n".join(f"  {work:<22}{words}" for work, words in works.items()))
    work = _answer("work", given, "Which work does each row need?", list(works))
    column = given["text_column"] or ""
    if not column and is_table(source) and column_of(work) == "text":
        if inputs.texts and sys.stdin.isatty():
            click.echo(f"  columns with texts: {', '.join(inputs.texts)}", err=True)
        usual = next(iter(inputs.texts), "text")
        column = _answer("text_column", given, "Which column holds the text?", default=usual)
    if column and inputs.names and column not in inputs.names:
        raise JobError(f"--text-column {column}: expected one of {', '.join(inputs.names)}.")
    model = given["model"] or ""
    if offer := offers().get(work):
        model = _answer("model", given, "Which model?", default=offer.model)
    folder_name = re.sub(r"[^a-z0-9_-]+", "-", folder.resolve().name.lower())
    name = given["name"] or folder_name.strip("-_") or "job"
    timezone = given["timezone"] or "UTC"
    return Answers(folder, name, path, source, work, model, column, inputs, cron, timezone)


def _answer(
    name: str, given: Mapping[str, str | None], question: str, choices: list[str] | None = None, default: str = ""
) -> str:
    """Return the value of an option, otherwise the answer to a prompt, otherwise the default."""
    if answer := given[name]:
        if choices and answer not in choices:
            raise JobError(f"--{name} {answer}: expected one of {', '.join(choices)}.")
        return answer
    if sys.stdin.isatty():
        kind = click.Choice(choices) if choices else str
        return str(click.prompt(question, type=kind, default=default or None, err=True))
    if default:
        return default
    option = f"--{name.replace('_', '-')}"
    if choices:
        option += f", one of {', '.join(choices)}"
    raise JobError(f"expected {option}, found no such option and no terminal for a prompt. {question}")
