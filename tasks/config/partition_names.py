"""The name of a partition, which shows the values of its columns.

It is `all`, a time (`2026-11-19`, `2026-11-19T05`, `2026-W47`, `2026-11`), a value (`eu`), or both with a comma between
them (`2026-11-19,eu`). The columns are one text as well, such as `date,hour,region`. A name is safe in shells, names of
files, URLs and tags.
"""

import re
from datetime import date

TIME = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})(?:T(?P<hour>[0-9]{2}))?"
    r"|(?P<week>[0-9]{4}-W[0-9]{2})|(?P<month>[0-9]{4}-[0-9]{2})"
)
VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
PLACEHOLDER = re.compile(r"(?<!\$)\{(\w+)\}")


def time_and_value(partition: str) -> tuple[str, str]:
    """Return the time and the value in a partition's name. Either may be empty."""
    time, _, value = partition.partition(",")
    return (time, value) if TIME.fullmatch(time) else ("", partition)


def partition_name(time: str, value: str) -> str:
    """Return the name of the partition of a time and a value. Either may be empty."""
    return ",".join(filter(None, (time, value)))


def is_value(text: str) -> bool:
    """Return True if a text can be a value in a partition's name: no time, no odd characters."""
    is_plain = bool(VALUE.fullmatch(text)) and ".." not in text
    return is_plain and text != "all" and not re.match("[0-9]{4}-", text)


def partition_values(columns: str, partition: str) -> dict[str, date | str]:
    """Return the value of each of a partition's columns: days are dates, and others texts."""
    if partition == "all":
        return {}
    time, value = time_and_value(partition)
    match = TIME.fullmatch(time)
    times = match.groupdict() if match else {}
    texts = [text for text in [*times.values(), value] if text]
    values: dict[str, date | str] = {}
    for column, text in zip(columns.split(","), texts, strict=True):
        is_day = text == times.get("date")
        if column == "date" and not is_day:
            raise ValueError(f"expected a day in the column date, found {text}")
        values[column] = date.fromisoformat(text) if is_day else text
    return values


def partition_folder(columns: str, partition: str) -> str:
    """Return the Hive folders of a partition, such as `date=2026-11-19/region=eu`; empty for the partition `all`."""
    return "/".join(f"{column}={value}" for column, value in partition_values(columns, partition).items())


def partition_condition(columns: str, partition: str) -> str:
    """Return the SQL condition that holds for the rows of a partition; `true` for the partition `all`."""
    conditions = []
    for name, value in partition_values(columns, partition).items():
        is_day = isinstance(value, date)
        conditions.append(f"{name} = {'date ' * is_day}'{value}'")
    return " AND ".join(conditions) or "true"


def filled(template: str, partition: str) -> str:
    """Return `template` with the values of a partition in place of `{partition}`, `{date}`, `{hour}`, `{region}`."""
    time, value = time_and_value("" if partition == "all" else partition)
    match = TIME.fullmatch(time)
    times = match.groupdict() if match else {}

    def replacement(placeholder: re.Match[str]) -> str:
        return str(times.get(placeholder[1]) or value or placeholder[0])

    text = template.replace("{partition}", partition)
    return PLACEHOLDER.sub(replacement, text) if time or value else text
