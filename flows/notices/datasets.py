"""The datasets of OpenLineage that a job reads and writes: their names, and their facets.

A dataset is a folder or a table without its partition, so that the lineage of all days is one graph. Names follow the
naming rules of OpenLineage: `s3://bucket` and `raw/photos`, `file` and `/data/photos`, `postgres://host:5432` and
`sales.orders`. At most 20 datasets and 100 inputs, each with its version, are in an event.
"""

import hashlib
import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from overnight.flows.job.model import Job
from overnight.flows.ledger.published_rows import files_of
from overnight.tasks.artifacts import dispensable
from overnight.tasks.config.masking import filled_in, masked
from overnight.tasks.ingest.kinds import JobRows
from overnight.tasks.state.manifest import iterate_units, read_snapshot
from overnight.tasks.state.run import Run

PRODUCER = f"urn:overnight:{version('overnight')}"
SCHEMAS = "urn:overnight:openlineage:1-0-0"  # of the facets in docs/_static/openlineage.json
DATASETS, INPUTS, SIZED_FILES, COLUMNS, LONGEST_VERSION = 20, 100, 1000, 1000, 100  # at most
BELOW = re.compile(r"(?<!\$)\{\w+\}|[*?[]")
Record = Mapping[str, Any]


def inputs_of(job: Job, run: Run | None, record: Record) -> list[Any]:
    """Return the datasets that a job reads. Once the inputs are listed, the first one has their number and versions."""
    from openlineage.client.event_v2 import InputDataset

    datasets = [InputDataset(*name) for name in _names_of_source(job)[:DATASETS]]
    if datasets and run:
        with dispensable("the event of OpenLineage has no inputs"):
            _add_versions(datasets[0], run, record)
    return datasets


def output_of(job: Job, record: Record) -> Any:
    """Return the dataset that a job writes, with the columns and the size of a publish."""
    from openlineage.client import facet_v2 as facets
    from openlineage.client.event_v2 import OutputDataset

    dataset = OutputDataset(*_name_of_sink(job))
    storage = facets.storage_dataset.StorageDatasetFacet(job.sink.kind, producer=PRODUCER)
    dataset.facets = {"storage": storage}
    if record.get("status") != "published":
        return dataset
    columns = facets.schema_dataset
    fields = [columns.SchemaDatasetFacetFields(name, str(facts.get("type"))) for name, facts in _columns(record)]
    number = str(record.get("table_version") or record["generation"])
    dataset.facets["schema"] = columns.SchemaDatasetFacet(fields, producer=PRODUCER)
    dataset.facets["version"] = facets.dataset_version_dataset.DatasetVersionDatasetFacet(number, producer=PRODUCER)
    size, count = _bytes_of(job, record), len(record["files"])
    statistics = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    dataset.outputFacets = {"outputStatistics": statistics(record["rows_out"], size, count or None, producer=PRODUCER)}
    return dataset


def sql_of(job: Job) -> str:
    """Return the query of a source in a database, otherwise an empty text."""
    return masked(getattr(job.source, "query", ""))


def custom_facet(name: str, **values: Any) -> dict[str, Any]:
    """Return a facet of Overnight's own. docs/_static/openlineage.json has its schema."""
    return {"_producer": PRODUCER, "_schemaURL": f"{SCHEMAS}#/$defs/{name}", **values}


def _add_versions(dataset: Any, run: Run, record: Record) -> None:
    from openlineage.client import facet_v2 as facets

    if not run.generation or not run.manifest.exists():
        return
    inputs: dict[str, dict[str, Any]] = {}
    for units in iterate_units(run.manifest, np.arange(INPUTS)):
        for unit in units.select(["path", "uri", "size", "version"]).to_pylist():
            uri, number = masked(unit["uri"] or unit["path"]), str(unit["version"])
            if len(number) > LONGEST_VERSION:  # of a database: the keys of the rows
                number = hashlib.sha256(number.encode()).hexdigest()
            inputs[unit["path"]] = {"uri": uri, "size": unit["size"], "version": number}
    dataset.facets = {"overnight_inputs": custom_facet("OvernightInputsFacet", inputs=list(inputs.values()))}
    if state := read_snapshot(run.manifest) or record.get("inputs"):
        dataset.facets["version"] = facets.dataset_version_dataset.DatasetVersionDatasetFacet(state, producer=PRODUCER)
    if record.get("status") == "published":
        statistics = facets.input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        numbers = statistics(record["rows_in"], record.get("bytes_in"), producer=PRODUCER)
        dataset.inputFacets = {"inputStatistics": numbers}


def _names_of_source(job: Job) -> list[tuple[str, str]]:
    source: Any = job.source
    if isinstance(source, JobRows):
        return [_of_path(source.upstream.sink)] if source.upstream.sink else []
    if database := getattr(source, "catalog", None) or getattr(source, "url", None):
        return [_of_table(database, getattr(source, "table", ""))]
    paths = getattr(source, "path", [])
    return [_of_path(path) for path in ([paths] if isinstance(paths, str) else paths)]


def _name_of_sink(job: Job) -> tuple[str, str]:
    sink: Any = job.sink
    table = getattr(sink, "table", "")
    database = getattr(sink, "catalog", None) or getattr(sink, "url", None)
    return _of_table(database, table) if database else _of_path(sink.place or str(job.state_location))


def _of_path(path: str) -> tuple[str, str]:
    """Return the namespace and the name of a folder, above the first name with a placeholder or a pattern."""
    folder, *below = BELOW.split(filled_in(path), maxsplit=1)
    address = urlsplit(folder.rpartition("/")[0] if below else folder)
    if address.scheme in ("", "file"):
        return "file", str(Path(address.path or "/").absolute())
    return f"{address.scheme}://{address.netloc}", address.path.strip("/") or "/"


def _of_table(url: str, table: str) -> tuple[str, str]:
    """Return the namespace and the name of a table in a database, or of the database for a query."""
    address = urlsplit(filled_in(url))
    scheme = address.scheme.partition("+")[0].replace("postgresql", "postgres")
    host = address.netloc.rpartition("@")[2]
    name = ".".join(filter(None, [address.path.strip("/"), table]))
    return f"{scheme}://{host}", name or "default"


def _columns(record: Record) -> list[tuple[str, Record]]:
    return list((record.get("columns") or {}).items())[:COLUMNS]


def _bytes_of(job: Job, record: Record) -> int | None:
    """Return the size of the published files; None if it is unknown, or if they are too many to look at."""
    files = files_of(job, record)
    if not 0 < len(files) <= SIZED_FILES:
        return None
    with dispensable("the event of OpenLineage has no size"):
        filesystem, _ = files[0].open_filesystem()
        return sum(filesystem.sizes([file.open_filesystem()[1] for file in files]))
    return None
