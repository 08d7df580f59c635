"""The types of the flows' parameters. The UI's form and the server check their bounds before a run exists.

Each type is an `Annotated`, because Prefect 3.9 drops the bounds and the description of a bare `int = Field(ge=0)`.
"""

from typing import Annotated

from pydantic import Field, WithJsonSchema

from overnight.flows.job.secret_patterns import NO_SECRET_SETTING, NO_SECRET_URL

DAY = r"[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))"
# The form offers these three, and a date picker for the second. The form checks the format, and the server the pattern.
DAYS = [
    {"title": "the day that is due", "type": "string", "enum": [""], "const": ""},
    {"title": "this day", "type": "string", "format": "date", "pattern": f"^{DAY}$"},
    {"title": "all, of a source without days", "type": "string", "enum": ["all"], "const": "all"},
]
Day = Annotated[str, Field(pattern=f"^(all|{DAY})?$"), WithJsonSchema({"anyOf": DAYS})]
RowLimit = Annotated[int, Field(ge=0)]
Reason = Annotated[str, Field(json_schema_extra={"pattern": NO_SECRET_URL})]
# The server reads the pattern of the schema; pydantic's own regular expressions look neither ahead nor back.
Setting = Annotated[
    str,
    Field(
        pattern=r"^[^=\s]+=", examples=["inference.0.batch_size=8"], json_schema_extra={"pattern": NO_SECRET_SETTING}
    ),
]
