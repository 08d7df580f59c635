"""`overnight search`: print the published rows that are most similar to an image or a text."""

from collections.abc import Sequence
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
    type=click.IntRange(min=1),
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

        validate_query(load_job(job_path), *(question[name] for name in ("image", "text", "model", "sheet")))
        from overnight.api.local_run import search_locally

        found = search_locally(job_path, **question)
    print_result(found, as_json, lambda: show_matches(found))


def show_matches(found: dict[str, Any]) -> None:
    """Print the matches of a search as a table on stdout: scores, row ids, and the other columns of each row."""
    console = VisibleConsole(highlight=False, soft_wrap=False)
    known = list(dict.fromkeys(name for match in found["matches"] for name in match))
    hidden = {"score", "row_id"} | ({"partition"} if found["partitions"] == ["all"] else set())
    names = [name for name in known if name not in hidden]
    table = Table(Column("score", justify="right"), "row_id", *map(escape, names))
    for match in found["matches"]:
        cells = (match["row_id"], *["" if match.get(name) is None else str(match[name]) for name in names])
        table.add_row(f"{match['score']:.4f}", *[escape(text) for text in cells])
    if console.measure(table, options=console.options.update(max_width=100_000)).maximum <= console.width:
        console.print(table)
    else:
        _show_apart(console, found["matches"], names)
    for one in found["skipped"]:
        console.print(f"left out: {one['partition']}: {one['why']}", markup=False)
    rows, time = f"{found['rows']:,} rows of {len(found['partitions'])} partitions", f"{found['seconds']:.1f} s"
    if found["exact"]:
        without = f"{found['rows_without_embedding']:,} without an embedding"
        console.print(f"{found['job']}: compared with {rows} in {time}; {without}", markup=False, soft_wrap=True)
    else:
        console.print(
            f"{found['job']}: searched the index of {rows} in {time}; --exact compares with all rows",
            markup=False,
            soft_wrap=True,
        )
    if found["sheet"]:
        console.print(f"picture sheet: {found['sheet']}", markup=False, soft_wrap=True)


def _show_apart(console: Console, matches: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    """Print each match on lines of its own, because a table would fold texts into columns of a few characters."""
    for match in matches:
        console.print(f"{match['score']:.4f}  {match['row_id']}", markup=False, soft_wrap=True)
        for name in names:
            if match.get(name) is not None:
                console.print(Padding(Text(f"{name}: {match[name]}"), (0, 0, 0, 8), expand=False))
