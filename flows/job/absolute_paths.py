"""Write the relative paths of a job file in full, and keep the rest of the file, with its comments."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from overnight.flows.job.loading import absolute, read_job, relative_places
from overnight.flows.job.yaml_loader import parse_yaml, replace_values, value_at, yaml_line
from overnight.tasks.errors import JobError


def write_absolute_paths(path: Path) -> list[str]:
    """Replace each relative path in a job file by the full path, and return the new ones, as `source.path: /data/raw`.

    A relative path is below the working directory, as in a run. Raise `JobError` if the file holds no mapping, or if it
    writes a path as a YAML anchor or alias, which cannot be replaced alone.
    """
    places = {keys: absolute(found) for keys, found in relative_places(read_job(path))}
    quoted = {keys: yaml_line([full])[1:-1] for keys, full in places.items()}  # as in a list: the braces of {partition}
    text = replace_values(path.read_text(encoding="utf-8"), quoted)
    if not _has(text, places):
        raise JobError(f"{path}: its anchors hide the relative paths. Write {', '.join(places.values())} yourself.")
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
    return [f"{'.'.join(map(str, keys))}: {full}" for keys, full in places.items()]


def _has(text: str, values: Mapping[Any, str]) -> bool:
    try:
        data = parse_yaml(text, "the new file")
    except JobError:  # an anchor is gone
        return False
    return all(value_at(data, keys) == value for keys, value in values.items())
