"""The types of the flows' parameters. The UI's form and the server check their bounds before a run exists.

Each type is an `Annotated`, because Prefect 3.9 drops the bounds and the description of a bare `int = Field(ge=0)`.
The server refuses a secret in plain text before it stores it. Its patterns follow the rules of `masking.py` as far as
the regular expressions of Python and JavaScript share them. What they miss, the loading of the job refuses.
"""

import re
from typing import Annotated

from pydantic import Field, WithJsonSchema

from overnight.flows.job.partitions import Partitions
from overnight.tasks.config.masking import SECRET_WORDS
from overnight.tasks.config.partition_names import VALUE, partition_name
from overnight.tasks.config.periods import EXAMPLES, Unit

_VARIABLE = r"\$\{[^}]*\}"


def _in_any_case(pattern: str) -> str:
    return re.sub(r"[a-z]", lambda letter: f"[{letter.group()}{letter.group().upper()}]", pattern)


_NAME = rf"(?:{_in_any_case('token')}|(?:[\w-]*[_-])?(?:{_in_any_case(SECRET_WORDS).replace('_?', '[_-]?')}))"
_SETTING = rf"(?:[^=]*\.)?{_NAME}=(?!\s*(?:null|~|true|false)?\s*$)(?!.*{_VARIABLE})"
_MAPPING = rf"[^=]*=\s*\[?\s*\{{(?:.*[{{,])?\s*[\x22']?{_NAME}[\x22']?\s*:\s*"
_INSIDE = rf"{_MAPPING}(?!(?:null|~|true|false)\b)(?![^,}}]*{_VARIABLE})[^\s,}}]"
_USER = rf"(?!(?:abfss?|wasbs?)://)\b[a-zA-Z][\w+.-]*://(?!(?:{_VARIABLE}|:)*@)[^\s/?#'\x22<>]+@"
_QUERY = rf"://[^\s?#'\x22<>]*\?[^\s#'\x22<>]*=(?!{_VARIABLE}(?:[&;\s'\x22]|$))(?![&;\s'\x22]|$)"

NO_SECRET_URL = rf"^(?![\s\S]*(?:{_USER}|{_QUERY}))"
NO_SECRET_SETTING = rf"{NO_SECRET_URL}(?!{_SETTING})(?!{_INSIDE})[^=\s]+="

DAY = r"[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))"
# The form offers these three, and a date picker for the second. The form checks the format, and the server the pattern.
DAYS: list[dict[str, object]] = [
    {"title": "the day that is due", "type": "string", "enum": [""], "const": ""},
    {"title": "this day", "type": "string", "format": "date", "pattern": f"^{DAY}$"},
    {"title": "all, of a source without days", "type": "string", "enum": ["all"], "const": "all"},
]
NAME = "[A-Za-z0-9][A-Za-z0-9._,-]*"  # of any job's partition
# The server checks the choices, for a job with `partitions` those of `partition_choices`.
Day = Annotated[str, Field(pattern=f"^({NAME})?$"), WithJsonSchema({"anyOf": DAYS})]
TIMES: dict[Unit, str] = {
    "hour": f"{DAY}T([01][0-9]|2[0-3])",
    "day": DAY,
    "week": "[0-9]{4}-W(0[1-9]|[1-4][0-9]|5[0-3])",
    "month": "[0-9]{4}-(0[1-9]|1[0-2])",
}


def partition_choices(partitions: Partitions) -> list[dict[str, object]]:
    """Return the choices of the form for a job with `partitions`: what is due, or one partition by its name."""
    [values] = partitions.values.values() or [[]]
    names = list(values) if isinstance(values, list) else []
    parts = [TIMES[partitions.every]] if partitions.every else []
    if partitions.values:
        parts.append(f"({'|'.join(map(re.escape, names)) or VALUE.pattern})")
    example = EXAMPLES[partitions.every] if partitions.every else ""
    name = partition_name(example, (names or ["eu"])[0] if partitions.values else "")
    choice: dict[str, object] = {
        "title": f"this one, such as {name}",
        "type": "string",
        "pattern": f"^{','.join(parts)}$",
    }
    if names and not partitions.every:
        choice = {"title": "this one", "type": "string", "enum": names}
    return [{**DAYS[0], "title": "what is due"}, choice]


RowLimit = Annotated[int, Field(ge=0)]
Reason = Annotated[str, Field(json_schema_extra={"pattern": NO_SECRET_URL})]
# The server reads the pattern of the schema; pydantic's own regular expressions look neither ahead nor back.
Setting = Annotated[
    str,
    Field(
        pattern=r"^[^=\s]+=", examples=["inference.0.batch_size=8"], json_schema_extra={"pattern": NO_SECRET_SETTING}
    ),
]
