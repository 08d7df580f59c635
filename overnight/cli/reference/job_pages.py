"""The pages of the job file as Markdown: every key of every kind, from the types that read it."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from overnight.cli.reference.key_tables import (
    HEADER,
    OwnKey,
    first_paragraph,
    nested_mappings,
    nested_tables,
    own_keys,
    row,
    table,
    table_of,
)
from overnight.flows.job.budget import Budget
from overnight.flows.job.model import Job
from overnight.flows.job.notify import Receiver
from overnight.flows.job.partitions import Partitions
from overnight.flows.job.retries import Retries
from overnight.flows.job.run_after import RunAfter
from overnight.flows.job.schedule import Schedule
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.memory.settings import Memory
from overnight.tasks.preprocess.kinds import Step
from overnight.tasks.shuffle.kinds import Shuffle
from overnight.tasks.write.kinds import AnySink, Checks

SECTIONS = {
    "source": ("Sources", Source, "What `source` takes: where the rows come from."),
    "shuffle": ("Shuffles", Shuffle, "What `shuffle` takes: the order in which the rows are read."),
    "preprocess": ("Steps", Step, "What each item of `preprocess` takes: the work on CPUs before the models."),
    "inference": (
        "Models",
        AnyPredictor,
        "What each item of `inference` takes: a model, or a [step](preprocess.md) between models, see "
        "[models in a row](../../how-to/several-models.md#models-in-a-row).",
    ),
    "sink": (
        "Sinks",
        AnySink,
        "What `sink` takes: where the rows go. [Files on disk](../files.md) has the layout, and what readers see.",
    ),
}
LISTS = ("preprocess", "inference", "run_after", "notify")
MAKE_COLUMNS = {"source": "sources", "preprocess": "steps", "inference": "models"}  # section -> heading of columns.md
SINGLE: dict[str, tuple[str, type[BaseModel], str]] = {
    "checks": (
        "Checks",
        Checks,
        "What `checks` takes: what must hold before a partition is published. "
        "[Checks and publishing](../../explanations/publishing.md) has an example.",
    ),
    "schedule": (
        "Schedule",
        Schedule,
        "What `schedule` takes: when the job runs, and for which day. "
        "[Schedule](../../operations/schedule.md) has an example, and explains late data and downtime.",
    ),
    "run_after": (
        "Jobs that it follows",
        RunAfter,
        "What `run_after` takes, alone or as each item of a list: a job whose publish starts this one. "
        "[Jobs that follow jobs](../../operations/chains.md) has an example.",
    ),
    "partitions": (
        "Partitions",
        Partitions,
        "What `partitions` takes: what a partition is, if it is not a day. Short forms are `{date: day, region: [eu, "
        "us]}` and `{values: [eu, us]}`. [Hours, weeks and regions](../../how-to/hourly.md) has examples.",
    ),
    "notify": (
        "Receivers",
        Receiver,
        "What each item of `notify` takes: who gets a message about a partition, and for which events. "
        "[Messages](../../operations/notify.md) has an example.",
    ),
    "budget": (
        "Budget",
        Budget,
        "What `budget` takes: what a partition may cost, and how long a run may take. "
        "[Spend no more than](../../how-to/chat.md#spend-no-more-than) has an example.",
    ),
    "retries": (
        "Retries",
        Retries,
        "What `retries` takes: how often lost work is started again. "
        "[What runs when](../../explanations/what-runs-when.md) explains what is tried again.",
    ),
    "memory": (
        "Memory",
        Memory,
        "What `memory` takes: where the results of models are remembered. "
        "[Change a job](../../how-to/change-a-job.md) has an example.",
    ),
}


def job_pages() -> dict[str, str]:
    """Return the Markdown of each page of the job file by its name below docs/, without `.md`."""
    pages = {"top": "\n".join(_top_page())}
    for section, (title, _, words) in SECTIONS.items():
        pages[section] = "\n".join(_union_page(section, title, words))
    for section, (title, model, words) in SINGLE.items():
        schema = model.model_json_schema()
        tables = [*table_of(schema), *nested_tables(nested_mappings(schema))]
        pages[section] = "\n".join([f"# {title}", "", words, "", *tables])
    return {f"reference/job-file/{name}": text for name, text in pages.items()}


def kinds(section: str) -> list[str]:
    """Return the kinds that a section of the job file takes, in the code's order."""
    return [leaf.model_fields["kind"].default for leaf in leaves_of(section)]


def leaves_of(section: str) -> tuple[type[BaseModel], ...]:
    """Return the models of the kinds that a section takes, in the code's order."""
    return get_args(get_args(SECTIONS[section][1])[0])


def _top_page() -> Iterator[str]:
    yield from ["# The top of a job file", "", "A job file is one YAML mapping with these keys.", ""]
    sections = {**SECTIONS, **SINGLE}
    yield from HEADER
    schemas = Job.model_json_schema()["properties"]
    for name, field in Job.model_fields.items():
        if name in sections:
            form = "list; empty" if name in LISTS else "mapping; optional"
            if field.is_required():
                form = "mapping; **required**"
            words = sections[name][2].partition(": ")[2]
            yield f"| [`{name}`]({name}.md) | {form} | {words[0].upper()}{words[1:]} |"
        else:
            yield row(name, schemas[name], field.is_required(), {})
    yield ""


def _union_page(section: str, title: str, words: str) -> Iterator[str]:
    leaves = leaves_of(section)
    schemas = {leaf: leaf.model_json_schema() for leaf in leaves}
    common = shared_keys(list(schemas.values()))
    yield from [f"# {title}", "", words, ""]
    if section in MAKE_COLUMNS:
        yield from [
            f"[Columns](../columns.md#columns-of-{MAKE_COLUMNS[section]}) lists what each kind reads and makes.",
            "",
        ]
    mappings: dict[str, Any] = {}
    if common:
        yield from [f"## All {title.lower()}", "", "A kind with another default lists the key again.", ""]
        yield from table(common, schemas[leaves[0]].get("$defs", {}))
    for leaf, schema in schemas.items():
        mappings |= nested_mappings(schema)
        yield from [f"## {leaf.model_fields['kind'].default}", "", first_paragraph(leaf), ""]
        yield from table([key for key in own_keys(schema) if key not in common], schema.get("$defs", {}))
    yield from nested_tables(mappings)


def shared_keys(schemas: list[Mapping[str, Any]]) -> list[OwnKey]:
    """Return the keys that every kind has, in the form that the first kind has and most others too."""
    keys = list(map(own_keys, schemas))
    names = set.intersection(*(set(schema["properties"]) for schema in schemas))
    return [key for key in keys[0] if key.name in names and sum(key in some for some in keys) > len(keys) / 2]
