"""The job model: the settings of a job file. Each section is its room's union of leaves."""

import re
from datetime import timedelta
from itertools import takewhile
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import Field, TypeAdapter, field_validator, model_validator

from overnight.flows.job.inference_kinds import ModelOrStep
from overnight.flows.job.retries import Retries
from overnight.flows.job.schedule import Schedule
from overnight.tasks.config.masking import masked_in
from overnight.tasks.config.settings import Settings
from overnight.tasks.infer.kinds import Predictor
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.preprocess.kinds import Step
from overnight.tasks.shuffle.kinds import Shuffle
from overnight.tasks.state.run import FORMAT_VERSION, Run, partition_directory
from overnight.tasks.storage.location import Location
from overnight.tasks.write.kinds import AnySink, Checks, Sink

# Fingerprints and receipts keep the old names, so that a renamed setting makes no partition stale.
RECORDED_AS = {"keep_columns": "keep"}


class Job(Settings):
    """One job: its source, its steps and models, its sink and its schedule."""

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
    inference: Annotated[
        list[ModelOrStep],
        Field(description="Models and steps, in order; each sees the columns that those before it made."),
    ] = []
    checks: Checks = Checks()
    sink: AnySink
    schedule: Schedule | None = None
    retries: Annotated[
        Retries,
        Field(
            description="How often work is started again that a lost worker, node, process or storage ended.",
            json_schema_extra={"formerly": "max_attempts"},
        ),
    ] = Retries()
    state: Annotated[
        str | None, Field(min_length=1, description="The place of the ledger; default: _overnight in sink.path.")
    ] = None

    row_timeout_seconds: Annotated[
        float | None,
        Field(gt=0, description="A row that takes longer than this is quarantined; null: no limit."),
    ] = 300.0
    stall_timeout_seconds: Annotated[
        float | None,
        Field(gt=0, description="The run fails if no row moves in any stage for this long; null: no limit."),
    ] = 1800.0

    @field_validator("inference")
    @classmethod
    def _distinct_names(cls, chain: list[ModelOrStep]) -> list[ModelOrStep]:
        models = {place: entry for place, entry in enumerate(chain) if isinstance(entry, Predictor)}
        places: dict[str, int] = {}
        for place, model in models.items() if len(models) > 1 else ():
            if model.name is None:
                raise ValueError(
                    f"expected a name for each of several models, found none for inference.{place} "
                    f"({model.kind}); add name, which prefixes its columns"
                )
            if model.name in places:
                first = places[model.name]
                raise ValueError(
                    f"expected different names, found {model.name} for inference.{first} and inference.{place}"
                )
            places[model.name] = place
        return chain

    @model_validator(mode="after")
    def _known_placeholders(self) -> "Job":
        dated = {f"source.{key}": text for key, text in self.source.dated_texts()}
        paths = dated | {"sink.path": self.sink.place or "", "state": self.state or ""}
        for key, path in paths.items():
            allowed = {"{partition}"} if key in dated else set()
            for found in re.findall(r"(?<!\$)\{\w*\}", path):
                if found not in allowed:
                    also = "{partition} or " if allowed else ""
                    hint = "" if allowed else "; each partition gets its own directory there without one"
                    raise ValueError(f"{key}: expected no placeholder but {also}${{ENV_VAR}}, found {found}{hint}")
        return self

    @model_validator(mode="after")
    def _a_state_has_a_place(self) -> "Job":
        if not self.state and not self.sink.place:
            raise ValueError(
                f"state: expected a directory, found none. A sink of kind {self.sink.kind} has no directory for "
                "receipts and staged rows. Set state, for example to s3://bucket/overnight/my-job"
            )
        return self

    @model_validator(mode="after")
    def _can_be_published_to(self) -> "Job":
        for key, path in (("sink.path", self.sink.place), ("state", self.state)):
            if path and path.startswith("hf://"):
                raise ValueError(
                    f"{key}: expected a place to publish to, found hf://, which can only be read: it would let two "
                    "runs write at the same time. Publish to another place, and upload the partition from there"
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
        """Return True if the job has one partition per day, and False if its only partition is `all`."""
        return self.source.is_dated

    @property
    def models(self) -> list[Predictor]:
        """Return the models of `inference`, in order."""
        return [entry for entry in self.inference if isinstance(entry, Predictor)]

    @property
    def steps(self) -> list[Step]:
        """Return the steps before the first model: those of `preprocess`, then those at the start of `inference`."""
        return [*self._preparation, *self._steps_ahead]

    @property
    def _preparation(self) -> list[Step]:
        """Return `preprocess`, with `decode_image` first if images come from files and the job has no such step.

        `resize_image` on the column `image` decodes images itself.
        """
        steps = [*self.preprocess, *self._steps_ahead]
        first = steps[0] if steps else None
        decodes = first is not None and first.kind == "resize_image" and first.column == "image"
        if not self.source.holds_images or decodes or any(step.kind == "decode_image" for step in steps):
            return self.preprocess
        return [TypeAdapter(Step).validate_python({"kind": "decode_image"}), *self.preprocess]

    @property
    def _steps_ahead(self) -> list[Step]:
        """Return the steps of `inference` before its first model."""
        return list(takewhile(lambda entry: not isinstance(entry, Predictor), self.inference))

    @property
    def steps_behind(self) -> list[list[Step]]:
        """Return for each model the steps of `inference` between it and the next one."""
        behind: list[list[Step]] = []
        for entry in self.inference[len(self._steps_ahead) :]:
            if isinstance(entry, Predictor):
                behind.append([])
            else:
                behind[-1].append(entry)
        return behind

    @property
    def offset(self) -> timedelta:
        return timedelta(days=self.schedule.offset_days if self.schedule else -1)

    @property
    def timezone(self) -> ZoneInfo:
        return ZoneInfo(self.schedule.timezone if self.schedule else "UTC")

    @property
    def state_location(self) -> Location:
        """`<state>`: the directory of the job's ledgers."""
        return Location(self.state or f"{(self.sink.place or '').rstrip('/')}/_overnight")

    def ledger(self, partition: str) -> Location:
        """Return `<state>/date=D` or `<state>/all`: the directory of a partition's records."""
        return self.state_location / (partition_directory(self.sink.partition_column, partition) or "all")

    def output_location(self, is_sample: bool) -> Location:
        """Return the directory of the files that a receipt lists. A sample never touches real data."""
        if is_sample:
            return self.state_location / "samples/published"
        # A sink without a directory of its own publishes elsewhere: only samples are written here.
        return Location(self.sink.place) if self.sink.place else self.state_location / "published"

    def sink_for(self, run: Run) -> Sink:
        """Return the job's sink, or the sink that publishes samples if the run is limited."""
        return self.sink.of_samples() if run.limit_rows else self.sink

    def ingredients(self) -> dict[str, Any]:
        """Return all that decides results except the inputs, as JSON values.

        These are the settings that change results, hashes of the files of models and predictors, and the format
        version. Raise `JobError` if a model or predictor is missing.
        """
        return {
            "settings": self.result_settings(),
            "models": [entry.fingerprint() for entry in self.inference],
            "steps": [step.fingerprint() for step in self._preparation],
            "format_version": FORMAT_VERSION,
        }

    def settings(self) -> dict[str, Any]:
        """Return all settings as they were written, as JSON values for readers, with the secrets of URLs masked."""
        settings: dict[str, Any] = masked_in(self.model_dump(mode="json", exclude_none=True))
        return settings

    def result_settings(self) -> dict[str, Any]:
        """Return the settings that change results, as JSON values, without defaults. The others are operational."""
        nameless = ("name",) if len(self.models) == 1 else ()
        sink = self.sink.content_settings()
        return {
            "source": self.source.content_settings(),
            "shuffle": self.shuffle.content_settings(),
            "preprocess": [step.content_settings() for step in self._preparation],
            "inference": [
                entry.content_settings(*(nameless if isinstance(entry, Predictor) else ())) for entry in self.inference
            ],
            "sink": {RECORDED_AS.get(name, name): value for name, value in sink.items()},
        }
