"""Every key and kind of a job file by its dotted name, such as `inference.image_embedding.batch_size`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from overnight.cli.init_templates import SHIPPED
from overnight.cli.reference.job_pages import LISTS, SECTIONS, SINGLE, leaves_of, shared_keys
from overnight.cli.reference.key_tables import default_words, one_line, own_keys, table_of, type_words
from overnight.flows.job.model import Job
from overnight.flows.job.yaml_loader import parse_yaml, yaml_document


@dataclass(frozen=True)
class Key:
    """A key with its JSON schema: its section or itself, the kind that has it, if one has, and its path below these."""

    section: str
    schema: Mapping[str, Any]
    is_required: bool
    defs: Mapping[str, Any]
    kind: str = ""
    path: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the dotted name."""
        return ".".join(filter(None, (self.section, self.kind, *self.path)))

    @property
    def words(self) -> str:
        """Return the description in one line."""
        return " ".join(str(self.schema.get("description", "")).split())

    def page(self) -> str:
        """Return the key's description, type, default and example as Markdown."""
        type_text = re.sub(r"\[(\w+)\]\(.*?\)", r"\1", type_words(self.schema, self.defs))
        default = default_words(self.schema.get("default"))
        if self.is_required:
            default = "none, the key is required"
        lines = [f"# {self.name}", "", one_line(self.words), "", f"- type: {type_text}", f"- default: {default}"]
        example = self._example()
        if example is not None:
            lines += ["", "```yaml", yaml_document(self._in_a_job(example)).rstrip(), "```"]
        if mapping := _mapping(self.schema, self.defs):
            lines += ["", *table_of(mapping)]
        return "\n".join(lines)

    def inner_keys(self) -> Iterator["Key"]:
        """Yield the keys of the mapping that this key takes, and theirs."""
        for name, schema, is_required in own_keys(_mapping(self.schema, self.defs)):
            key = Key(self.section, schema, is_required, self.defs, self.kind, (*self.path, name))
            yield from (key, *key.inner_keys())

    def _example(self) -> Any:
        """Return a value of the key: the example in the code, that of a job that ships, or the default."""
        if self.schema.get("examples"):
            return self.schema["examples"][0]
        # A key of a source or a sink means the same in each kind.
        kinds = (self.kind, "") if self.section in ("source", "sink") else (self.kind,)
        for kind in kinds:
            for entry in _entries(self.section, kind):
                value: Any = entry
                for key in self.path:
                    value = value.get(key, {}) if isinstance(value, dict) else {}  # a text, or parts
                if value != {}:
                    return value
        return self.schema.get("default")

    def _in_a_job(self, value: Any) -> Any:
        for key in reversed(self.path):
            value = {key: value}
        if self.kind:
            value = {"kind": self.kind, **value}
        return {self.section: _as_entry(self.section, value)}


@cache
def job_keys() -> tuple[Key, ...]:
    """Return all keys of a job file: those of the top, of its sections, and of their kinds."""
    return tuple(_all_keys())


def kind_example(section: str, kind: str) -> str:
    """Return the first entry of this kind in the jobs that ship, as YAML. Return an empty text if none has it."""
    for entry in _entries(section, kind):
        return yaml_document({section: _as_entry(section, entry)}).rstrip()
    return ""


def _all_keys() -> Iterator[Key]:
    top = Job.model_json_schema()
    for name, schema in top["properties"].items():
        key = Key(name, schema, name in top["required"], top["$defs"])
        if name in SECTIONS:
            yield from _section_keys(name)
            continue
        if name not in SINGLE:  # which is a page
            yield key
        yield from key.inner_keys()


def _section_keys(section: str) -> Iterator[Key]:
    schemas = {str(leaf.model_fields["kind"].default): leaf.model_json_schema() for leaf in leaves_of(section)}
    first = next(iter(schemas.values()))
    for name, schema, is_required in shared_keys(list(schemas.values())):
        yield Key(section, schema, is_required, first.get("$defs", {}), path=(name,))
    for kind, whole in schemas.items():
        for name, schema, is_required in own_keys(whole):
            key = Key(section, schema, is_required, whole.get("$defs", {}), kind, (name,))
            yield from (key, *key.inner_keys())


def _mapping(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of the mapping that a value, or each of a list, is; empty if it has no keys of its own."""
    if "$ref" in schema:
        target = defs[schema["$ref"].rpartition("/")[2]]
        return {**target, "$defs": defs} if target.get("properties") else {}
    for choice in (*schema.get("anyOf", ()), *schema.get("allOf", ()), *filter(None, [schema.get("items")])):
        if mapping := _mapping(choice, defs):
            return mapping
    return {}


@cache
def _shipped_jobs() -> tuple[dict[str, Any], ...]:
    return tuple(parse_yaml(file.read_text(encoding="utf-8"), file.name) for file in sorted(SHIPPED.glob("*.yaml")))


def _entries(section: str, kind: str) -> Iterator[dict[str, Any]]:
    """Yield what jobs that ship have in a section, of one kind if `kind` is one."""
    for job in _shipped_jobs():
        content = job.get(section)
        for entry in content if isinstance(content, list) else (content,):
            if isinstance(entry, dict) and kind in ("", entry.get("kind")):
                yield entry


def _as_entry(section: str, value: Any) -> Any:
    return [value] if section in LISTS else value
