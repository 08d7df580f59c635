"""`overnight search`: print the published rows that are most similar to an image or a text."""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from overnight.api.console import VisibleConsole
from overnight.cli.command import EXIT_STATUS, exit_on_error, job_argument, json_option, print_result


@click.command(epilog=EXIT_STATUS)
@job_argument
@click.option("--image", metavar="F", help="The image to search with: a path or a URI.")
@click.option("--text", metavar="T", help="The text to search with.")
@click.option(
    "-n",
    "count",
    metavar="N",
    type=click.IntRange(1, 999_999),
    default=5,
    show_default=True,
    help="The number of rows to print.",
)
@click.option("--model", metavar="NAME", help="The name of the embedding model, if the job has several.")
@click.option("--partition", metavar="D", help="Search one partition; default: all published partitions.")
@click.option("--sheet", metavar="FILE.png", help="Write a picture of the query and the matches to this file.")
@click.option("--exact", is_flag=True, help="Compare with every row instead of using the table's index.")
@json_option
def search(job_path: Path, as_json: bool, **question: Any) -> None:
    """Find published rows that are most similar to an image or a text.

    Search compares embeddings by cosine similarity. The job needs an embedding model and published partitions.
    """
    from overnight.flows.job.loading import load_job

    with exit_on_error():
        from overnight.flows.similarity_search import validate_query

        image, text, model, sheet = map(question.get, ("image", "text", "model", "sheet"))
        validate_query(load_job(job_path), image, text, model, sheet)
        from overnight.api.local_run import search_locally

        answer = search_locally(job_path, **question)
    print_result(answer, as_json, lambda: show_matches(answer))


def show_matches(answer: dict[str, Any]) -> None:
    """Print the matches of a search as a table on stdout: scores, row ids, and the other columns of each row."""
    console = VisibleConsole(highlight=False, soft_wrap=False)
    matches = answer["matches"]
    names = dict.fromkeys(chain.from_iterable(matches))
    for name in ("score", "row_id", *["partition"] * (answer["partitions"] == ["all"])):
        names.pop(name, None)  # without a match there is no name
    table = Table(Column("score", justify="right"), "row_id", *map(escape, names))
    for match in matches:
        values = [match["row_id"], *map(match.get, names)]
        texts = ["" if value is None else escape(str(value)) for value in values]
        table.add_row(f"{match['score']:.4f}", *texts)
    wide = console.options.update(max_width=100_000)
    if console.measure(table, options=wide).maximum <= console.width:
        console.print(table)
    else:
        _show_apart(console, matches, names)
    for partition in answer["skipped"]:
        console.print(f"left out: {partition['partition']}: {partition['why']}", markup=False)
    rows = f"{answer['rows']:,} rows of {len(answer['partitions'])} partitions in {answer['seconds']:.1f} s"
    line = f"searched the index of {rows}; --exact compares with all rows"
    if answer["exact"]:
        without = f"{answer['rows_without_embedding']:,} without an embedding"
        line = f"compared with {rows}; {without}"
    console.print(f"{answer['job']}: {line}", markup=False, soft_wrap=True)
    if answer["sheet"]:
        console.print(f"picture sheet: {answer['sheet']}", markup=False, soft_wrap=True)


def _show_apart(console: Console, matches: Sequence[dict[str, Any]], names: Iterable[str]) -> None:
    """Print each match on lines of its own, because a table would fold texts into columns of a few characters."""
    for match in matches:
        console.print(f"{match['score']:.4f}  {match['row_id']}", markup=False, soft_wrap=True)
        for name in names:
            if match.get(name) is not None:
                console.print(Padding(Text(f"{name}: {match[name]}"), (0, 0, 0, 8), expand=False))
