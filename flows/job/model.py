"""The job model: what a job file may say, and how one is read. Each section is its room's union of leaves.

Nothing here is expanded: `{partition}` and `${ENV_VAR}` stay as they are written until the place where they are used.
"""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from overnight.flows.job.retries import Retries
from overnight.flows.job.validation_errors import explain, nearest
from overnight.flows.job.yaml_loader import parse_yaml
from overnight.tasks.config.settings import Leaf
from overnight.tasks.errors import JobError
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.masking import masked_in, secrets_in
from overnight.tasks.preprocess.kinds import Step
from overnight.tasks.shuffle.kinds import Shuffle
from overnight.tasks.write.kinds import AnySink, Checks

RECORDED_AS = {"keep_columns": "keep"}  # in fingerprints and receipts, which a new name of a setting does not change
PATHS = (("source", "path"), ("sink", "path"), ("state",))


class Schedule(Leaf):
    """When the job runs by itself and which partition it then takes."""

    cron: Annotated[str, Field(description="Five cron fields.", examples=["0 2 * * *"])]
    timezone: Annotated[str, Field(description="IANA name; the clock of cron, partitions and deadline.")] = "UTC"
    offset_days: Annotated[
        int, Field(ge=-3660, le=3660, description="The partition's day relative to the scheduled one.")
    ] = -1
    catch_up: Annotated[
        Literal["all", "latest", "none"], Field(description="Which partitions run that a downtime left out.")
    ] = "latest"
    lookback_days: Annotated[int, Field(ge=0, description="Earlier days that run again if their inputs changed.")] = 0
    deadline: Annotated[
        str | None,
        Field(
            pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$",
            examples=["06:00"],
            description="Time of day by which the partition is to be published.",
        ),
    ] = None
    notify: Annotated[
        str | None,
        Field(
            pattern=r"^[a-z0-9-]+/[a-z0-9-]+$",
            examples=["slack-webhook/team"],
            description="A Prefect notification block that is told of a partition not published by its deadline.",
        ),
    ] = None

    @field_validator("cron")
    @classmethod
    def _cron(cls, cron: str) -> str:
        from prefect.client.schemas.schedules import CronSchedule  # takes as long to import as all the rest

        try:
            CronSchedule(cron=cron)  # what Prefect's scheduler takes
            CronSim(cron, datetime.min)  # what tells a schedule's days: no @daily, no 30th of February
        except (ValidationError, CronSimError):
            raise ValueError(f"expected five cron fields, for example '0 2 * * *', found {cron!r}") from None
        return cron

    @model_validator(mode="after")
    def _a_notification_has_a_deadline(self) -> "Schedule":
        if self.notify and not self.deadline:
            raise ValueError(f"notify: {self.notify} is told of what is late, and there is no deadline; set one")
        return self

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, timezone: str) -> str:
        try:
            ZoneInfo(timezone)
        except (KeyError, ValueError, OSError):
            close = nearest(timezone, available_timezones())
            raise ValueError(f"expected an IANA name such as Europe/Berlin, found {timezone!r}{close}") from None
        return timezone


class Job(Leaf):
    """One job: where rows come from, what is done with them, where they go and when."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9][a-z0-9_-]*$",
            max_length=100,
            examples=["daily-embeddings_2"],
            description="Lower-case letters, digits, - and _.",
        ),
    ]
    source: Source
    shuffle: Annotated[Shuffle, Field(validate_default=True)] = {"kind": "none"}  # type: ignore[assignment]
    preprocess: Annotated[list[Step], Field(description="Steps on the CPU, in order.")] = []
    inference: Annotated[list[AnyPredictor], Field(description="Models; each sees the same rows.")] = []
    checks: Checks = Checks()
    sink: AnySink
    schedule: Schedule | None = None
    retries: Annotated[
        Retries,
        Field(
            description="Of what failed because a worker, a node, a process or storage did.",
            json_schema_extra={"formerly": "max_attempts"},
        ),
    ] = Retries()
    state: Annotated[
        str | None, Field(min_length=1, description="Where the ledger is kept; default: _overnight in sink.path.")
    ] = None

    row_timeout_seconds: Annotated[
        float | None,
        Field(gt=0, description="A row that keeps its worker longer than this is quarantined; null: no limit."),
    ] = 300.0
    stall_timeout_seconds: Annotated[
        float | None,
        Field(gt=0, description="The run fails when no row moved in any stage for so long; null: no limit."),
    ] = 1800.0

    @field_validator("inference")
    @classmethod
    def _distinct_names(cls, models: list[AnyPredictor]) -> list[AnyPredictor]:
        names = [model.name for model in models]
        for number, name in enumerate(names):
            if len(names) > 1 and name is None:
                raise ValueError(
                    f"several models: inference.{number} ({models[number].kind}) needs a name, "
                    "which prefixes its columns"
                )
            if len(names) > 1 and names.index(name) < number:
                raise ValueError(f"inference.{names.index(name)} and inference.{number} are both named {name}")
        return models

    @model_validator(mode="after")
    def _known_placeholders(self) -> "Job":
        dated = {f"source.{key}": text for key, text in self.source.dated_texts()}
        paths = dated | {"sink.path": self.sink.place or "", "state": self.state or ""}
        for key, path in paths.items():
            allowed = {"{partition}"} if key in dated else set()
            for found in re.findall(r"(?<!\$)\{\w*\}", path):
                if found not in allowed:
                    also = "{partition} or " if allowed else ""
                    hint = "" if allowed else "; each partition has its own directory there anyway"
                    raise ValueError(f"{key}: expected no placeholder but {also}${{ENV_VAR}}, found {found}{hint}")
        return self

    @model_validator(mode="after")
    def _a_state_has_a_place(self) -> "Job":
        if not self.state and not self.sink.place:
            raise ValueError(
                f"state: expected a directory, for a sink of kind {self.sink.kind} has none of its own; receipts and "
                "staged rows are kept there. Set state, for example to s3://bucket/overnight/my-job"
            )
        return self

    @model_validator(mode="after")
    def _can_be_published_to(self) -> "Job":
        for key, path in (("sink.path", self.sink.place), ("state", self.state)):
            if path and path.startswith("hf://"):
                raise ValueError(
                    f"{key}: hf:// can be read, not published to: of two runs at once it lets both write. Publish "
                    "elsewhere, and upload the partition from there"
                )
        return self

    @model_validator(mode="after")
    def _a_stall_outlasts_a_row(self) -> "Job":
        row, stall = self.row_timeout_seconds, self.stall_timeout_seconds
        if row and stall and stall <= row:
            raise ValueError(
                f"stall_timeout_seconds: expected more than row_timeout_seconds ({row:g}), found {stall:g}"
            )
        return self

    @property
    def is_dated(self) -> bool:
        """Whether the job has a partition a day, rather than the single partition `all`."""
        return self.source.is_dated

    @property
    def steps(self) -> list[Step]:
        """`preprocess`, begun by decoding where images come from files and the job leaves that out.

        What resizes them decodes them itself.
        """
        first = self.preprocess[0] if self.preprocess else None
        decodes = first is not None and first.kind == "resize_image" and first.column == "image"
        holds_images = self.source.kind == "images" or getattr(self.source, "content", "") == "image"
        if not holds_images or decodes or any(step.kind == "decode_image" for step in self.preprocess):
            return self.preprocess
        return [TypeAdapter(Step).validate_python({"kind": "decode_image"}), *self.preprocess]

    @property
    def offset(self) -> timedelta:
        return timedelta(days=self.schedule.offset_days if self.schedule else -1)

    @property
    def timezone(self) -> ZoneInfo:
        return ZoneInfo(self.schedule.timezone if self.schedule else "UTC")

    def settings(self) -> dict[str, Any]:
        """All settings as they were written, as JSON values, for people: without what may be secret in a URL."""
        settings: dict[str, Any] = masked_in(self.model_dump(mode="json", exclude_none=True))
        return settings

    def result_settings(self) -> dict[str, Any]:
        """Return the settings that change results, as JSON values, without defaults. All others are operational."""
        nameless = ("name",) if len(self.inference) == 1 else ()
        sink = self.sink.content_settings()
        return {
            "source": self.source.content_settings(),
            "shuffle": self.shuffle.content_settings(),
            "preprocess": [step.content_settings() for step in self.steps],
            "inference": [model.content_settings(*nameless) for model in self.inference],
            "sink": {RECORDED_AS.get(name, name): value for name, value in sink.items()},
        }


def load_job(path: Path | str, overrides: Sequence[str] = ()) -> Job:
    """The job of a file, with `KEY=VALUE` overrides, its relative paths made absolute.

    Raises `JobError` with a line for each problem: the key, what is allowed and what was found.
    """
    data = read_job(path, overrides)
    for keys, found in _relative(data):
        section: Any = data
        for key in keys[:-1]:
            section = section[key]
        section[keys[-1]] = os.path.abspath(found) + ("/" if found.endswith("/") else "")
    try:
        return Job.model_validate(data)
    except ValidationError as error:
        lines = explain(error, data, job_schema())
        several = "" if len(lines) == 1 else f"{len(lines)} problems\n  "
        raise JobError(f"{path}: {several}" + "\n  ".join(lines)) from None


def read_job(path: Path | str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """A job file as it is written, with overrides, not yet validated. Raises `JobError` where it is no mapping."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise JobError(f"{path}: expected a job file, found nothing there.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{path}: cannot read the job file: {error}") from None
    data = parse_yaml(text, str(path))
    if not isinstance(data, dict):
        found = "an empty file" if data is None else f"a {'list' if isinstance(data, list) else type(data).__name__}"
        raise JobError(f"{path}: expected a mapping with name, source and sink, found {found}.")
    for override in overrides:
        _override(data, override)
    return data


def relative_paths(data: Mapping[str, Any]) -> list[str]:
    """`source.path: data/raw` for each local path that depends on the working directory, of `read_job`'s mapping."""
    return [f"{'.'.join(keys)}: {found}" for keys, found in _relative(data)]


def is_relative(path: str) -> bool:
    """Whether a path of a job file depends on the working directory."""
    return not re.match(r"/|~|\$\{|[A-Za-z][A-Za-z0-9+.-]*:", path)


def job_schema() -> dict[str, Any]:
    """The JSON schema of job files, for editors."""
    schema = Job.model_json_schema()
    for definition in schema["$defs"].values():
        if "const" in definition.get("properties", {}).get("kind", {}):
            definition["required"] = ["kind", *(key for key in definition.get("required", []) if key != "kind")]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Overnight job"}


def _relative(data: Mapping[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    found: list[tuple[tuple[str, ...], str]] = []
    for keys in PATHS:
        value: Any = data
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str) and value and is_relative(value):
            found.append((keys, value))
    return found


def _override(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise JobError(f"--set {override}: expected KEY=VALUE, for example inference.0.batch_size=8.")
    *parents, last = key.split(".")
    section: Any = data
    for depth, part in enumerate(parents):
        if isinstance(section, dict) and section.get(part) is None:
            section[part] = [] if key.split(".")[depth + 1].isdecimal() else {}
        section = section[_index(section, part, key, parents[:depth])]
    value = parse_yaml(text, f"--set {key}")
    for secret in secrets_in(key, value):
        raise JobError(
            f"--set {secret}: expected no secret, found one: Prefect keeps and shows the settings of a run. Write "
            "${NAME} for the environment variable that holds it where the job runs, or let your own code read that."
        )
    section[_index(section, last, key, parents)] = value


def _index(section: Any, part: str, key: str, parents: list[str]) -> str | int:
    where = ".".join(parents)
    if isinstance(section, dict):
        return part
    if not isinstance(section, list):
        raise JobError(f"--set {key}: {where} is {section!r} and has no keys.")
    if not section:
        raise JobError(f"--set {key}: {where} is empty in the job file.")
    if not part.isdecimal() or int(part) >= len(section):
        raise JobError(f"--set {key}: expected a number from 0 to {len(section) - 1} after {where}, found {part}.")
    return int(part)
