"""Write the relative paths of a job file in full, and keep the rest of the file, with its comments."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from overnight.flows.job.loading import absolute, read_job, relative_places
from overnight.flows.job.yaml_loader import parse_yaml, replace_values, value_at, yaml_line
from overnight.tasks.errors import JobError


def write_absolute_paths(path: Path) -> list[str]:
    """Replace the relative paths in a job file by full paths, and return the new ones, as `source.path: /data/raw`."""
    paths = {keys: absolute(relative) for keys, relative in relative_places(read_job(path))}
    texts = {keys: yaml_line([full])[1:-1] for keys, full in paths.items()}  # as in a list: the braces of {partition}
    text = replace_values(path.read_text(encoding="utf-8"), texts)
    if not _has(text, paths):
        raise JobError(f"{path}: its anchors hide the relative paths. Write {', '.join(paths.values())} yourself.")
    copy = path.with_name(f".{path.name}.new")
    copy.write_text(text, encoding="utf-8")
    copy.replace(path)
    return [f"{'.'.join(map(str, keys))}: {full}" for keys, full in paths.items()]


def _has(text: str, values: Mapping[Any, str]) -> bool:
    try:
        data = parse_yaml(text, "the new file")
    except JobError:  # an anchor is gone
        return False
    return all(value_at(data, keys) == value for keys, value in values.items())
