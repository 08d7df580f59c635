"""Find published rows of a job whose embedding is most similar to that of an image or a text.

The flow embeds the query with the job's own model and preprocessing, in this process and on the CPU. Then it compares
every published row (`tasks/search/knn.py`), or searches the index of a Lance table. It starts no Ray: one row needs no
worker pool, and the scan waits for the storage more than it computes. The receipts list the files, so that each
partition is read in one version. Partitions with embeddings of another model are skipped, and the result names them.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import prefect.runtime
from prefect import flow
from prefect.artifacts import create_markdown_artifact
from prefect.states import Completed

from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import PartitionStatus, read_ledger
from overnight.flows.runs import run_sentences
from overnight.flows.runs.failed_state import in_one_sentence
from overnight.flows.schedule.partitions import parse_day, resolve_partition
from overnight.tasks.artifacts import artifact_key, cell, dispensable
from overnight.tasks.errors import JobError, OvernightError
from overnight.tasks.infer.kinds import COMMIT
from overnight.tasks.infer.task import Embedder, embed_image, embed_text, embedder
from overnight.tasks.preprocess.kinds import RenameColumns
from overnight.tasks.preprocess.task import query_image, readable_image
from overnight.tasks.search.task import LanceTable, PublishedPartition, Tile, draw_sheet, scan
from overnight.tasks.state.run import published_files
from overnight.tasks.storage.location import Location

PARQUET, LANCE = ".parquet", ".lance"  # the files that can be searched


class NothingToSearch(OvernightError):
    """Raised when no published partition has embeddings that can be compared with the query's."""


def run_name() -> str:
    """Return the name of the current flow run: the name of the job file without its ending."""
    return Path(str(prefect.runtime.flow_run.parameters["job"])).stem


@flow(name="similarity-search", flow_run_name=run_name, persist_result=False)
@in_one_sentence
def similarity_search(
    job: str,
    image: str | None = None,
    text: str | None = None,
    count: int = 5,
    model: str | None = None,
    partition: str | None = None,
    sheet: str | None = None,
    exact: bool = False,
) -> Any:
    """Find published rows that are most similar to an image or a text.

    Args:
        job: The job file, as a path where the flow runs.
        image: The image to search with: a path or a URI.
        text: The text to search with, instead of an image.
        count: The number of rows to find.
        model: The name of the embedding model, if the job has several.
        partition: Search one partition. Empty: all published partitions.
        sheet: A path or URI for a picture of the query and the matches, as PNG.
        exact: Compare with every row instead of using the table's index.

    Returns:
        The document that `overnight search --json` prints. Its `matches` are the rows, best first.
    """
    started = time.monotonic()
    loaded = load_job(Path(job))
    chosen, column = validate_query(loaded, image, text, model, sheet)
    pixels = _pixels(loaded, image) if image else None
    found, skipped, chosen = published(loaded, chosen, partition)
    query = embed_text(chosen, text or "") if pixels is None else embed_image(chosen, pixels)
    result = {
        "job": loaded.name,
        "query": {"image": image} if image else {"text": text},
        "partitions": sorted({rows.partition for rows in found}),
        "skipped": skipped,
        **scan(found, column, query, count, exact),
        "sheet": sheet,
    }
    if sheet:
        Location(sheet).write_bytes(_sheet(loaded, image, text, result["matches"]))
    result["seconds"] = round(time.monotonic() - started, 3)
    _describe(loaded, result)
    return Completed(message=run_sentences.searched(result), data=result)


def validate_query(
    job: Job, image: str | None, text: str | None, model: str | None, sheet: str | None
) -> tuple[Embedder, str]:
    """Return the model that embeds the query, and the column of its embeddings.

    `model` is the name of the model, needed if the job has several. `sheet` is the path of a picture of the matches.

    Raise `JobError` if there is not exactly one of `image` and `text`, or if the job cannot embed the query. Also raise
    it for a `sheet` of a model of texts, and if a later step removes the embeddings.
    """
    if (image is None) == (text is None):
        raise JobError(f"expected an image or a text to search with, found {'neither' if image is None else 'both'}.")
    chosen, column = embedder(job.models, model)
    if chosen.kind == "text_embedding" and (image or sheet):
        option, what = ("image", "Search with a text") if image else ("sheet", "Leave it out")
        raise JobError(f"{option}: the model {chosen.name or chosen.model} embeds texts, not images. {what}.")
    return chosen, _published_name(job, chosen, column)


def _published_name(job: Job, model: Embedder, column: str) -> str:
    """Return the name that a column of `model` has after the steps that follow the model.

    Raise `JobError` if one of these steps removes the column.
    """
    for entry in job.inference[job.inference.index(model) + 1 :]:
        effect = entry.column_effect()
        if isinstance(entry, RenameColumns):
            column = entry.columns.get(column, column)
        elif column in effect.removes or (effect.keeps is not None and column not in effect.keeps):
            raise JobError(
                f"expected published embeddings in a column {column!r}, found that {entry.kind} removes it. Let this "
                "step keep it, and run the job again."
            )
    return column


def published(
    job: Job, model: Embedder, partition: str | None
) -> tuple[list[PublishedPartition], list[dict[str, str]], Embedder]:
    """Return the rows of the partitions that can be searched, the skipped partitions with their reasons, and the model.

    The returned model is `model` at the commit of the newest partition. Partitions of another commit are skipped.
    Without `partition`, look at all published ones.

    Raise `NothingToSearch` if no partition can be searched, and `JobError` for a partition that the job cannot have.
    """
    day = resolve_partition(job, partition, None, datetime.now(UTC)) if partition else "all"
    start = None if day == "all" else parse_day(day)
    if job.sink.place is None:
        raise NothingToSearch(f"expected a sink of Parquet files or a Lance table, found kind: {job.sink.kind}.")
    place, files_of_model, sink = job.inference.index(model), model.fingerprint(), Location(job.sink.place)
    table: LanceTable | None = None  # in the same version for all partitions
    found: list[PublishedPartition] = []
    skipped: list[dict[str, str]] = []
    entries = [entry for entry in read_ledger(job, start, start) if entry.receipt]
    commit = next((known for entry in reversed(entries) if (known := _commit(entry, model))), None)
    for entry in entries:
        receipt = dict(entry.receipt or {})
        names = published_files(receipt)
        why = _not_comparable(receipt["ingredients"], place, model, files_of_model, names)
        if not why and _commit(entry, model) not in (None, commit):
            why = "another commit of the job's model made its embeddings"
        if why:
            skipped.append({"partition": entry.partition, "why": why})
            continue
        if table is None and any(name.endswith(LANCE) for name in names):
            column = job.sink.partition_column if job.is_dated else None
            table = LanceTable(sink, column)
        if table:
            receipt["table_version"] = table.dataset.version
        found.append(PublishedPartition(entry.partition, partial(job.sink.read, sink, receipt), table))
    if not found:
        which = f"partition {partition}" if partition else "a partition"
        why = "; ".join(f"{one['partition']}: {one['why']}" for one in skipped[:3]) or "no published partition"
        raise NothingToSearch(f"expected {which} of {job.name} with embeddings, found {why}. Run the job first.")
    return found, skipped, model.pinned({COMMIT: commit} if commit else {})


def _commit(entry: PartitionStatus, model: Embedder) -> str | None:
    """Return the commit of a hub model that made a partition, None if it is unknown."""
    found: str | None = ((entry.receipt or {}).get("commits") or {}).get(model.hub_name())
    return found


def _not_comparable(
    then: Mapping[str, Any], place: int, model: Embedder, files_of_model: Mapping[str, str], names: Sequence[str]
) -> str:
    """Return the reason that a partition's embeddings are not from `model`, or an empty string if they are.

    `then` holds the ingredients of the partition's receipt.
    """
    if others := [name for name in names if not name.endswith((PARQUET, LANCE))]:
        return f"expected Parquet files or a Lance table, found {others[0]}"
    settings = then["settings"]["inference"]
    before = settings[place] if place < len(settings) else {}
    same = all(
        before.get(name, default) == getattr(model, name) for name, default in (("kind", ""), ("dtype", "float32"))
    )
    if not same or then["models"][place] != files_of_model:
        return "another model than the job's current one made its embeddings"
    return ""


def _pixels(job: Job, image: str) -> np.ndarray:
    """Return the image after the job's steps. Raise `JobError` if it cannot be read."""
    try:
        content = Location(image).read_bytes()
    except OSError as error:
        raise JobError(f"image {image}: cannot be read: {error}") from None
    return query_image(image, content, job.steps)


def _sheet(job: Job, image: str | None, text: str | None, matches: Sequence[Mapping[str, Any]]) -> bytes:
    def tile(match: Mapping[str, Any]) -> Tile:
        content = _picture(match.get("uri"), getattr(job.source, "anonymous", False))
        return Tile(content, f"{match['score']:.3f} {match.get('label') or ''}", match["row_id"])

    query = Tile(_picture(image, False), "query", image) if image else Tile(text, "query")
    return draw_sheet(query, [tile(match) for match in matches])


def _picture(uri: str | None, anonymous: bool) -> np.ndarray | None:
    """Return the image of a file, or None if the file is gone or is not an image."""
    try:
        return readable_image(Location(uri, anonymous=anonymous).read_bytes()) if uri else None
    except (OSError, OvernightError):
        return None


@dispensable()
def _describe(job: Job, result: Mapping[str, Any]) -> None:
    create_markdown_artifact(
        key=artifact_key(job.name, "search"),
        description=f"Rows of {job.name} that are most similar to {next(iter(result['query'].values()))!r}",
        markdown="\n\n".join(map(match_markdown, result["matches"])),
    )


def match_markdown(match: Mapping[str, Any]) -> str:
    """Return a match as Markdown: its score and row, and its other columns as a list.

    A table would be too wide for Prefect's page, whose new UI then writes its own text over it.
    """
    others = {name: value for name, value in match.items() if name not in ("score", "row_id") and value is not None}
    lines = [f"- {cell(name)}: {cell(value)}" for name, value in others.items()]
    return "\n".join([f"**{match['score']:.4f}** {cell(match['row_id'])}", "", *lines])
