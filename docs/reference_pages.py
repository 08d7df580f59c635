"""Write the pages that follow from the code: every key of a job file, the command line, and the changelog.

`pages` returns them as Markdown, by their path below docs/. conf.py writes them before Sphinx reads the folder; git
ignores them. They are files, not directives, because llms-full.txt is made of the pages' files. A key without a
description stops the build.
"""

import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import click
from pydantic import BaseModel

import overnight
from overnight import extend
from overnight.cli.main import main as command_line
from overnight.flows.job.model import Job
from overnight.flows.job.notify import Receiver
from overnight.flows.job.retries import Retries
from overnight.flows.job.schedule import Schedule
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.preprocess.kinds import Step
from overnight.tasks.shuffle.kinds import Shuffle
from overnight.tasks.write.kinds import AnySink, Checks

UNITS = {2**30: "GiB", 2**20: "MiB"}
COLUMNS = 92  # of the help of a command: a block of code on the site shows as many
ROOT = Path(__file__).resolve().parents[1]
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
MAKE_COLUMNS = {"source": "sources", "preprocess": "steps", "inference": "models"}  # section -> heading of columns.md
SINGLE = {
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
    "notify": (
        "Receivers",
        Receiver,
        "What each item of `notify` takes: who gets a message about a partition, and for which events. "
        "[Messages](../../operations/notify.md) has an example.",
    ),
    "retries": (
        "Retries",
        Retries,
        "What `retries` takes: how often lost work is started again. "
        "[What runs when](../../explanations/what-runs-when.md) explains what is tried again.",
    ),
}
# A space that does not break keeps the number on its line.
RANGES = {
    "exclusiveMinimum": ">\N{NO-BREAK SPACE}{}",
    "minimum": "≥\N{NO-BREAK SPACE}{}",
    "exclusiveMaximum": "<\N{NO-BREAK SPACE}{}",
    "maximum": "≤\N{NO-BREAK SPACE}{}",
}
HEADER = ["| key | type; default | description |", "| --- | --- | --- |"]


def write(folder: Path) -> None:
    """Write the pages below `folder`. A page that is there with the same text stays, so that Sphinx skips it."""
    for name, text in pages().items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return the pages' Markdown by their path below docs/."""
    found = {"reference/job-file/top.md": "\n".join(_top_page())}
    for section, (title, union, words) in SECTIONS.items():
        found[f"reference/job-file/{section}.md"] = "\n".join(_union_page(section, title, union, words))
    for section, (title, model, words) in SINGLE.items():
        found[f"reference/job-file/{section}.md"] = "\n".join([f"# {title}", "", words, "", *_tables(model)])
    found["reference/extend.md"] = "\n".join(_extend_page())
    found["reference/python.md"] = "\n".join(_python_page())
    found["changelog.md"] = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
    found["reference/command-line.md"] = "\n".join(_command_page(command_line))
    return found


def kinds(section: str) -> list[str]:
    """Return the kinds that a section of the job file takes, in the code's order."""
    return [leaf.model_fields["kind"].default for leaf in _leaves(SECTIONS[section][1])]


def _leaves(union: Any) -> tuple[type[BaseModel], ...]:
    return get_args(get_args(union)[0])


def _top_page() -> Iterator[str]:
    yield from ["# The top of a job file", "", "A job file is one YAML mapping with these keys.", ""]
    sections = {**SECTIONS, **SINGLE}
    yield from HEADER
    for name, field in Job.model_fields.items():
        schema = Job.model_json_schema()["properties"][name]
        if name in sections:
            plural = "list" if name in ("preprocess", "inference", "notify") else "mapping"
            needed = "**required**" if field.is_required() else "empty" if plural == "list" else "optional"
            words = sections[name][2].partition(": ")[2]
            yield f"| [`{name}`]({name}.md) | {plural}; {needed} | {words[0].upper()}{words[1:]} |"
        else:
            yield _row(name, schema, field.is_required(), {})
    yield ""


def _union_page(section: str, title: str, union: Any, words: str) -> Iterator[str]:
    leaves = _leaves(union)
    schemas = {leaf: leaf.model_json_schema() for leaf in leaves}
    shared = _shared(list(schemas.values()))
    yield from [f"# {title}", "", words, ""]
    if section in MAKE_COLUMNS:
        yield from [
            f"[Columns](../columns.md#columns-of-{MAKE_COLUMNS[section]}) lists what each kind reads and makes.",
            "",
        ]
    nested: dict[str, Any] = {}
    if shared:
        yield from [f"## All {title.lower()}", "", "A kind with another default lists the key again.", ""]
        yield from _table(schemas[leaves[0]], only=shared)
    for leaf, schema in schemas.items():
        nested |= _nested(schema)
        yield from [f"## {leaf.model_fields['kind'].default}", "", _first_paragraph(leaf), ""]
        yield from _table(schema, but=shared)
    yield from _nested_tables(nested)


def _shared(schemas: list[Mapping[str, Any]]) -> set[str]:
    """Return the keys that every kind has, in the form that the first kind has and most others too."""
    names = set.intersection(*(set(schema["properties"]) for schema in schemas))
    forms = Counter(json.dumps(item, sort_keys=True) for schema in schemas for item in _own(schema))
    first = [item for item in _own(schemas[0]) if item[0] in names]
    return {form for item in first if forms[form := json.dumps(item, sort_keys=True)] > len(schemas) / 2}


def _tables(model: type[BaseModel]) -> Iterator[str]:
    schema = model.model_json_schema()
    yield from _table(schema)
    yield from _nested_tables(_nested(schema))


def _own(schema: Mapping[str, Any]) -> list[list[Any]]:
    needed = schema.get("required", [])
    return [[name, found, name in needed] for name, found in schema["properties"].items() if name != "kind"]


def _table(
    schema: Mapping[str, Any], only: set[str] | None = None, but: frozenset[str] | set[str] = frozenset()
) -> Iterator[str]:
    rows = [item for item in _own(schema) if json.dumps(item, sort_keys=True) not in (but or set())]
    rows = [item for item in rows if only is None or json.dumps(item, sort_keys=True) in only]
    if rows:
        yield from HEADER
        yield from (_row(name, found, needed, schema.get("$defs", {})) for name, found, needed in rows)
        yield ""


def _nested(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found for name, found in schema.get("$defs", {}).items() if found.get("properties")}


def _nested_tables(nested: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in nested.items():
        yield from [f"## The mapping {name}", "", _one_line(schema.get("description", "")), ""]
        yield from _table({**schema, "$defs": nested})


def _row(name: str, schema: Mapping[str, Any], is_required: bool, defs: Mapping[str, Any]) -> str:
    words = schema.get("description")
    if not words:
        raise ValueError(f"expected a description of every key of a job file, found none of {name}: {schema}")
    if schema.get("examples"):
        words += " Example: " + ", ".join(f"`{_yaml(example)}`" for example in schema["examples"])
    default = "**required**" if is_required else _value(schema.get("default"))
    return f"| `{name}` | {_type(schema, defs)}; {default} | {_one_line(words)} |"


def _value(default: Any) -> str:
    if default is None:
        return "optional"
    if default in ([], {}, ""):
        return "empty"
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    for size, unit in UNITS.items():
        if type(default) is int and default and default % size == 0:
            return f"`{default}` ({default // size} {unit})"
    return f"`{_yaml(default)}`"


def _yaml(value: Any) -> str:
    # JSON is YAML too.
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _type(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        found = defs.get(name, {})
        return f"[mapping](#the-mapping-{name.lower()})" if found.get("properties") else _type(found, defs)
    if "allOf" in schema:
        return _type(schema["allOf"][0], defs)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            types = [_type(choice, defs) for choice in schema[several] if choice.get("type") != "null"]
            return " or ".join(dict.fromkeys(types))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return "pair of " + _plural(_type(schema["prefixItems"][0], defs))
        return "list of " + _plural(_type(schema.get("items", {}), defs))
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return "mapping to " + _plural(_type(inner, defs)) if isinstance(inner, dict) and inner else "mapping"
    bounds = [words.format(schema[key]) for key, words in RANGES.items() if key in schema]
    name = {"string": "text", "number": "number", "integer": "integer", "boolean": "true or false"}.get(
        schema.get("type", ""), "anything"
    )
    return " ".join([name, ", ".join(bounds)]).strip()


def _plural(name: str) -> str:
    word, _, rest = name.partition(" ")
    plural = {"text": "texts", "integer": "integers", "number": "numbers", "mapping": "mappings"}.get(word, word)
    return f"{plural} {rest}".strip()


def _first_paragraph(leaf: type[BaseModel]) -> str:
    return _one_line((leaf.__doc__ or "").split("\n\n")[0])


def _one_line(text: str) -> str:
    """Return a text as one line for a cell, in which characters of Markdown are plain text."""
    line = " ".join(text.split()).replace("|", "\\|")  # a bar would end the cell, also in code
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if part.startswith("`") else _literal(part) for part in parts)


def _literal(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*")


def _command_page(group: click.Group) -> Iterator[str]:
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


def _extend_page() -> Iterator[str]:
    yield from ["# Classes for your own leaves", "", "`overnight.extend` has these names, and they stay."]
    yield from ["A leaf inherits from one of the classes and has the methods that are listed below it.", ""]
    yield from ["[A job and a model of your own](../how-to/extension.md) has an example.", ""]
    for name in extend.__all__:
        thing = getattr(extend, name)
        if inspect.isclass(thing):
            yield from [f"## {name}", "", _first_paragraph(thing), ""]
            for method in sorted(getattr(thing, "__abstractmethods__", ())):
                function = getattr(thing, method)
                taken = ", ".join(list(inspect.signature(function).parameters)[1:])
                yield f"- `{method}({taken})`: {_one_line((function.__doc__ or '').split(chr(10) * 2)[0])}"
            yield ""


def _python_page() -> Iterator[str]:
    yield from ["# The Python API", "", "`import overnight` has these names, and they stay.", ""]
    yield from ["[From Python](../how-to/from-python.md) has examples.", ""]
    for name in ("run", "backfill", "status", "preview", "search", "load"):
        yield from _documented(f"overnight.{name}", getattr(overnight, name), "##")
    yield from ["## overnight.Receipt", "", *_sections(overnight.Receipt), ""]
    for name, member in vars(overnight.Receipt).items():
        if not name.startswith("_"):
            yield from _documented(f"receipt.{name}", member, "###")
    yield from ["## overnight.Job", "", _first_paragraph(overnight.Job), ""]
    yield from _documented("job.to_yaml", overnight.Job.to_yaml, "###")
    yield from ["## The classes of a job", "", "Their settings are those of the job file.", ""]
    yield from ["| module | classes |", "| --- | --- |"]
    for module in ("sources", "shuffles", "steps", "models", "sinks"):
        names = ", ".join(f"`{name}`" for name in getattr(overnight, module).__all__)
        yield f"| `overnight.{module}` | {names} |"
    yield from ["| `overnight` | `Job`, `Checks`, `Schedule`, `Retries` |", "", "## Errors", ""]
    errors = [(name, getattr(overnight, name)) for name in overnight.__all__]
    for name, error in errors:
        if inspect.isclass(error) and issubclass(error, Exception):
            yield f"- `overnight.{name}`: {_first_paragraph(error)}"


def _documented(name: str, thing: Any, heading: str) -> Iterator[str]:
    if isinstance(thing, property):
        yield from [f"{heading} {name}", "", *_sections(thing), ""]
        return
    taken = [one for one in inspect.signature(thing).parameters.values() if one.name != "self"]
    words = [one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in taken]
    if any(one.kind is one.KEYWORD_ONLY for one in taken):
        words.insert(sum(one.kind is not one.KEYWORD_ONLY for one in taken), "*")
    yield from [f"{heading} {name}", "", f"`{name}({', '.join(words)})`", "", *_sections(thing), ""]


def _sections(thing: Any) -> Iterator[str]:
    """Yield a docstring's paragraphs, and its arguments and errors as lists."""
    for paragraph in inspect.cleandoc(thing.__doc__ or "").split("\n\n"):
        title, _, rest = paragraph.partition(":\n")
        if title not in ("Args", "Returns", "Raises"):
            yield from [_one_line(paragraph), ""]
            continue
        entries = re.split(r"\n(?=\S)", inspect.cleandoc(rest))
        yield from [f"{title}:", ""]
        for entry in entries:
            word, colon, text = entry.partition(": ")
            is_named = colon and title != "Returns"
            yield f"- `{word}`: {_one_line(text)}" if is_named else _one_line(entry)
        yield ""
