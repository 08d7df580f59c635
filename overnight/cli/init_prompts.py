"""The questions of `overnight init`, asked at a terminal; elsewhere what has no default has to be an option."""

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from overnight.cli.init_templates import (
    MODELS,
    Answers,
    default_name,
    find_source,
    names_column,
    source_kinds,
    works_for,
)
from overnight.tasks.errors import JobError


def answered(folder: Path, given: Mapping[str, str | None]) -> Answers:
    """All answers: the options that were given, and else what a person says. Raises `JobError`."""
    path = given["path"] or _asked("path", "Where are the inputs? A folder or a URI; {partition} stands for the day")
    kinds = list(source_kinds())
    source = given["source"] or find_source(path) or _asked("source", "What are they?", kinds)
    _one_of("source", source, kinds)
    works = works_for(source)
    if not given["work"] and sys.stdin.isatty():
        click.echo("\n".join(f"  {work:<22}{words}" for work, words in works.items()))
    work = given["work"] or _asked("work", "What is to be done with each row?", list(works))
    _one_of("work", work, list(works))
    column = given["text_column"] or ""
    if not column and names_column(source, work):
        column = _asked("text-column", "Which column holds the text?", default="text")
    model = given["model"] or (_asked("model", "Which model?", default=MODELS[work]) if work in MODELS else "")
    return Answers(folder, given["name"] or default_name(folder), path, source, work, model, column)


def _asked(option: str, question: str, choices: list[str] | None = None, default: str | None = None) -> str:
    if not sys.stdin.isatty():
        if default is not None:
            return default
        among = f", one of {', '.join(choices)}" if choices else ""
        raise JobError(f"expected --{option}{among}: there is no terminal here to ask at. {question}")
    kind = click.Choice(choices) if choices else str
    return str(click.prompt(question, type=kind, default=default, err=True))


def _one_of(option: str, found: str, choices: list[str]) -> None:
    if found not in choices:
        raise JobError(f"--{option} {found}: expected one of {', '.join(choices)}.")
