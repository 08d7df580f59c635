"""Find published rows of a job whose embedding is most similar to that of an image or a text.

The flow embeds the query with the job's own model and preprocessing, in this process and on the CPU. It starts no Ray:
one row needs no worker pool, and the scan waits for the storage more than it computes. The receipts list the files, so
that each partition is read in one version. Partitions with embeddings of another model are skipped, with a reason.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from overnight.flows.runs.flow_run import in_one_sentence, search_message
from overnight.flows.schedule.partitions import resolve_partition
from overnight.tasks.artifacts import artifact_key, cell, dispensable
from overnight.tasks.errors import JobError, OvernightError
from overnight.tasks.infer.kinds import COMMIT
from overnight.tasks.infer.task import Embedder, embed_image, embed_text, embedder, has_settings
from overnight.tasks.preprocess.kinds import RenameColumns
from overnight.tasks.preprocess.task import query_image, readable_image
from overnight.tasks.search.task import LanceTable, PublishedPartition, Tile, draw_sheet, scan
from overnight.tasks.state.run import published_files
from overnight.tasks.storage.location import Location

PARQUET, LANCE = ".parquet", ".lance"  # the files that can be searched
MOST_MATCHES = 999_999  # of `min(value, n)` in DuckDB 2.0


class NothingToSearch(OvernightError):
    """Raised when no published partition has embeddings that can be compared with the query's."""


@dataclass(frozen=True)
class Searchable:
    """The partitions to search, the skipped ones with their reasons, and the model at the commit of the rows."""

    partitions: list[PublishedPartition]
    skipped: list[dict[str, str]]
    model: Embedder


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
    start = time.monotonic()
    loaded = load_job(Path(job))
    predictor, column = validate_query(loaded, image, text, model, sheet, count)
    pixels = _pixels(loaded, image) if image else None
    target = searchable(loaded, predictor, partition)
    query = embed_text(target.model, text or "") if pixels is None else embed_image(target.model, pixels)
    result = {
        "job": loaded.name,
        "query": {"image": image} if image else {"text": text},
        "partitions": [partition.partition for partition in target.partitions],
        "skipped": target.skipped,
        **scan(target.partitions, column, query, count, exact),
        "sheet": sheet,
    }
    if sheet:
        Location(sheet).write_bytes(_sheet(loaded, image, text, result["matches"]))
    result["seconds"] = round(time.monotonic() - start, 3)
    with dispensable():
        create_markdown_artifact(
            key=artifact_key(loaded.name, "search"),
            description=f"Rows of {loaded.name} that are most similar to {image or text!r}",
            markdown="\n\n".join(map(match_markdown, result["matches"])),
        )
    return Completed(message=search_message(result), data=result)


def validate_query(
    job: Job, image: str | None, text: str | None, model: str | None, sheet: str | None, count: int = 1
) -> tuple[Embedder, str]:
    """Return the model that embeds the query, and the column of its embeddings."""
    if (image is None) == (text is None):
        raise JobError(f"expected an image or a text to search with, found {'neither' if image is None else 'both'}.")
    if not 1 <= count <= MOST_MATCHES:
        raise JobError(f"expected a number of rows from 1 to {MOST_MATCHES:,}, found {count:,}.")
    predictor, column = embedder(job.models, model)
    if predictor.kind in ("text_embedding", "endpoint_embedding") and (image or sheet):
        option, advice = ("image", "Search with a text") if image else ("sheet", "Leave it out")
        raise JobError(f"{option}: the model {predictor.name or predictor.model} embeds texts, not images. {advice}.")
    return predictor, _published_name(job, predictor, column)


def _published_name(job: Job, model: Embedder, column: str) -> str:
    """Return the name that a column of `model` has after the steps that follow the model."""
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


def searchable(job: Job, model: Embedder, partition: str | None) -> Searchable:
    """Return what can be searched: one partition, or all published ones, at the model's commit of the newest."""
    only = [resolve_partition(job, partition, None, datetime.now(UTC))] if partition else None
    if job.sink.place is None:
        raise NothingToSearch(f"expected a sink of Parquet files or a Lance table, found kind: {job.sink.kind}.")
    sink = Location(job.sink.place)
    table: LanceTable | None = None  # in the same version for all partitions
    partitions: list[PublishedPartition] = []
    skipped: list[dict[str, str]] = []
    entries = [entry for entry in read_ledger(job, only=only) if entry.receipt]
    commits = [commit for entry in entries if (commit := _commit(entry, model))]
    commit = commits[-1] if commits else None
    files = model.fingerprint()
    for entry in entries:
        receipt = dict(entry.receipt or {})
        names = published_files(receipt)
        if reason := _not_comparable(entry, job, model, files, commit, names):
            skipped.append({"partition": entry.partition, "why": reason})
            continue
        if not names:  # no rows; of a table, its version may be removed
            continue
        if table is None and names[0].endswith(LANCE):
            column = job.sink.partition_column if job.is_dated else None
            table = LanceTable(sink, column)
        if table:
            receipt["table_version"] = table.dataset.version
        partitions.append(PublishedPartition(entry.partition, partial(job.sink.read, sink, receipt), table))
    if not partitions:
        wish = f"partition {partition}" if partition else "a partition"
        reasons = "; ".join(f"{entry['partition']}: {entry['why']}" for entry in skipped[:3])
        raise NothingToSearch(
            f"expected {wish} of {job.name} with embeddings, found {reasons or 'no published partition'}. "
            "Run the job first."
        )
    return Searchable(partitions, skipped, model.pinned({COMMIT: commit} if commit else {}))


def _commit(entry: PartitionStatus, model: Embedder) -> str | None:
    commit: str | None = ((entry.receipt or {}).get("commits") or {}).get(model.hub_name())
    return commit


def _not_comparable(
    entry: PartitionStatus,
    job: Job,
    model: Embedder,
    files: Mapping[str, str],
    commit: str | None,
    names: Sequence[str],
) -> str:
    """Return the reason that a partition's embeddings are not from `model`, or an empty string if they are."""
    for name in names:
        if not name.endswith((PARQUET, LANCE)):
            return f"expected Parquet files or a Lance table, found {name}"
        if name.endswith(LANCE) != (job.sink.kind == "lance"):
            return f"expected files of a sink of kind {job.sink.kind}, found {name}"
    ingredients = (entry.receipt or {})["ingredients"]
    number, settings = job.inference.index(model), ingredients["settings"]["inference"]
    before = settings[number] if number < len(settings) else {}
    if not has_settings(model, before) or ingredients["models"][number] != files:
        return "another model than the job's current one made its embeddings"
    if _commit(entry, model) not in (None, commit):
        return "another commit of the job's model made its embeddings"
    return ""


def _pixels(job: Job, image: str) -> np.ndarray:
    try:
        content = Location(image).read_bytes()
    except OSError as error:
        raise JobError(f"image {image}: cannot be read: {error}") from None
    return query_image(image, content, job.steps)


def _sheet(job: Job, image: str | None, text: str | None, matches: Sequence[Mapping[str, Any]]) -> bytes:
    tiles = []
    for match in matches:
        picture = _picture(match.get("uri"), getattr(job.source, "anonymous", False))
        tiles.append(Tile(picture, f"{match['score']:.3f} {match.get('label') or ''}", match["row_id"]))
    query = Tile(_picture(image, False), "query", image) if image else Tile(text, "query")
    return draw_sheet(query, tiles)


def _picture(uri: str | None, anonymous: bool) -> np.ndarray | None:
    """Return the image of a file, or None if the file is gone or is not an image."""
    try:
        return readable_image(Location(uri, anonymous=anonymous).read_bytes()) if uri else None
    except (OSError, OvernightError):
        return None


def match_markdown(match: Mapping[str, Any]) -> str:
    """Return a match as Markdown: its score and row, and its other columns as a list.

    A table would be too wide for Prefect's page, whose new UI then writes its own text over it.
    """
    lines = [f"**{match['score']:.4f}** {cell(match['row_id'])}", ""]
    for name, value in match.items():
        if name not in ("score", "row_id") and value is not None:
            lines.append(f"- {cell(name)}: {cell(value)}")
    return "\n".join(lines)
