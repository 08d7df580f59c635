"""The job model: the settings of a job file. Each section is its room's union of leaves."""

import re
from collections.abc import Mapping
from datetime import timedelta
from itertools import takewhile
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationInfo, field_validator, model_validator

from overnight.flows.job.budget import Budget
from overnight.flows.job.inference_kinds import ModelOrStep
from overnight.flows.job.notify import Receiver
from overnight.flows.job.outputs import Outputs
from overnight.flows.job.partitions import DAYS, Partitions
from overnight.flows.job.retries import Retries
from overnight.flows.job.run_after import RunAfter, as_list
from overnight.flows.job.schedule import Schedule
from overnight.flows.job.yaml_loader import written, yaml_document
from overnight.tasks.config.masking import filled_in, masked_in
from overnight.tasks.config.settings import Settings
from overnight.tasks.config.user_signature import UserCode
from overnight.tasks.errors import JobError
from overnight.tasks.infer.kinds import COMMIT, Predictor, RemoteModel, Service
from overnight.tasks.ingest.kinds import JobRows, Source
from overnight.tasks.memory.settings import Memory
from overnight.tasks.preprocess.kinds import PartitionStep, Step
from overnight.tasks.resources.node_types import NodeType
from overnight.tasks.shuffle.kinds import Shuffle
from overnight.tasks.state.run import FORMAT_VERSION, REPORT, Run
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.stores import Store, require_prefixes
from overnight.tasks.write.kinds import RECORDED_AS, AnySink, Checks, Sink

EACH_MIDNIGHT = Schedule(cron="0 0 * * *")
# In place of a source that a job of Python does not have: its rows come from `data=` of a call.
NO_SOURCE = {"kind": "parquet", "path": "memory://data"}
JOB_FILE = {"is_file": True}  # the context of a validation that requires a source
PLACEHOLDER = re.compile(r"(?<!\$)\{\w*\}")


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
    run_after: Annotated[
        list[RunAfter],
        BeforeValidator(as_list, json_schema_input_type=RunAfter | list[RunAfter]),
        Field(description="A job, or a list of jobs, whose publish starts this job."),
    ] = []
    partitions: Annotated[
        Partitions | None,
        Field(
            description="What a partition is: an hour, a day, a week, a month, a value, or a value of a time; null: "
            "a day if the source has {partition}, otherwise the whole source.",
            examples=[{"every": "hour"}, {"date": "day", "region": ["eu", "us"]}],
        ),
    ] = None
    notify: Annotated[
        list[Receiver], Field(description="Who gets a message about a partition, and for which events.")
    ] = []
    budget: Annotated[
        Budget, Field(description="What a partition may cost in money, tokens and minutes; default: no limit.")
    ] = Budget()
    retries: Annotated[
        Retries,
        Field(
            description="How often work is started again that a lost worker, node, process or storage ended.",
            json_schema_extra={"formerly": "max_attempts"},
        ),
    ] = Retries()
    state: Annotated[
        str | None,
        Field(
            min_length=1, description="The folder of receipts and staged work; default: `_overnight` in `sink.path`."
        ),
    ] = None

    memory: Annotated[
        Memory | None,
        Field(description="Remembers what models make of rows, so that later runs and other jobs do not repeat it."),
    ] = None

    storage: Annotated[
        dict[str, Store],
        Field(
            description="How places in S3 are reached: the longest place that contains a URI decides. Other places: "
            "as the environment describes.",
            examples=[{"s3://raw": {"endpoint": "https://minio.example.com:9000", "profile": "raw"}}],
        ),
    ] = {}

    row_timeout_seconds: Annotated[
        float | None,
        Field(gt=0, description="A row that takes longer than this is quarantined; null: no limit."),
    ] = 300.0
    stall_timeout_seconds: Annotated[
        float | None,
        Field(
            gt=0,
            description="The run fails if no row moves, or no node that it needs starts, for this long; null: no "
            "limit.",
        ),
    ] = 1800.0
    busy_timeout_seconds: Annotated[
        float | None,
        Field(gt=0, description="The run fails if other runs use what it needs for this long; null: no limit."),
    ] = 43200.0
    cluster: Annotated[
        dict[str, NodeType],
        Field(
            description="Nodes that the cluster's autoscaler may start, by type; default: OVERNIGHT_CLUSTER.",
            examples=[{"t4": {"resources": {"CPU": 8, "GPU": 1, "accelerator_type:T4": 1}, "max_workers": 16}}],
        ),
    ] = {}

    price_per_gpu_hour: Annotated[
        float | None,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="The price of an hour of a GPU or another device, in a currency of yours, for the page of a "
            "run; default: OVERNIGHT_PRICE_PER_GPU_HOUR.",
        ),
    ] = None
    price_per_cpu_hour: Annotated[
        float | None,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="The same of an hour of a CPU; default: OVERNIGHT_PRICE_PER_CPU_HOUR.",
        ),
    ] = None

    allow_settings: Annotated[
        Literal["all"] | list[str],
        Field(
            description="Settings that runs of a deployment may change beside values: dotted keys, each with all below "
            "it, or all. A user who may start runs can then name other code, models or places.",
            examples=[["inference.0.model"]],
        ),
    ] = []

    @model_validator(mode="before")
    @classmethod
    def _source_is_left_to_the_call(cls, settings: Any, info: ValidationInfo) -> Any:
        """Accept a job of Python without a source."""
        if isinstance(settings, dict) and "source" not in settings and info.context != JOB_FILE:
            return {**settings, "source": NO_SOURCE}
        return settings

    @field_validator("allow_settings")
    @classmethod
    def _settings_of_a_job(cls, allowed: str | list[str]) -> str | list[str]:
        for key in allowed if isinstance(allowed, list) else ():
            if key.partition(".")[0] not in cls.model_fields or key == "allow_settings":
                raise ValueError(f"expected dotted keys of the job, such as inference.0.model, or all, found {key!r}")
        return allowed

    @field_validator("storage")
    @classmethod
    def _places_of_s3(cls, storage: dict[str, Store]) -> dict[str, Store]:
        require_prefixes(storage)
        return storage

    @field_validator("inference")
    @classmethod
    def _distinct_names(cls, chain: list[ModelOrStep]) -> list[ModelOrStep]:
        models = {number: entry for number, entry in enumerate(chain) if isinstance(entry, Predictor)}
        if len(models) < 2:
            return chain
        numbers: dict[str, int] = {}
        for number, model in models.items():
            if model.name is None:
                _check_code(model)  # a function that is not found looks like a model
                raise ValueError(
                    f"expected a name for each of several models, found none for inference.{number} "
                    f"({model.kind}); add name, which prefixes its columns"
                )
            if model.name in numbers:
                first = numbers[model.name]
                raise ValueError(
                    f"expected different names, found {model.name} for inference.{first} and inference.{number}"
                )
            numbers[model.name] = number
        return chain

    @field_validator("inference")
    @classmethod
    def _steps_that_compare_rows_are_before_or_behind_all_models(cls, chain: list[ModelOrStep]) -> list[ModelOrStep]:
        has_model = False
        for number, entry in enumerate(chain):
            has_model = has_model or isinstance(entry, Predictor)
            is_last = all(isinstance(later, PartitionStep) for later in chain[number:])
            if isinstance(entry, PartitionStep) and has_model and not is_last:
                raise ValueError(
                    f"expected {entry.kind} before the first model or at the end, found it between other entries as "
                    f"inference.{number}: all rows must have passed the model before it is decided which of them go. "
                    "Move it, or end this job with it and read its table in a second job"
                )
        return chain

    @field_validator("inference")
    @classmethod
    def _batches_are_of_the_first_model(cls, chain: list[ModelOrStep]) -> list[ModelOrStep]:
        models = [entry for entry in chain if isinstance(entry, Predictor)]
        for model in models[1:]:
            if getattr(model, "batch", None):
                raise ValueError(
                    f"expected batch only in the first model, found it in {model.name}: the requests of a batch are "
                    "made before any model runs. Leave out batch, or read this job's table in a second job"
                )
        return chain

    @model_validator(mode="after")
    def _known_placeholders(self) -> "Job":
        columns = self.partitions.columns if self.partitions else ()
        allowed = ["{partition}", *(f"{{{column}}}" for column in columns)]
        for key, text in self.source.dated_texts():
            for name in PLACEHOLDER.findall(text):
                if name not in allowed:
                    also = f"{', '.join(allowed)} or ${{ENV_VAR}}"
                    raise ValueError(f"source.{key}: expected no placeholder but {also}, found {name}")
        hint = "; each partition gets its own directory there without one"
        for key, path in (("sink.path", self.sink.place or ""), ("state", self.state or "")):
            for name in PLACEHOLDER.findall(path):
                raise ValueError(f"{key}: expected no placeholder but ${{ENV_VAR}}, found {name}{hint}")
        return self

    @model_validator(mode="after")
    def _reads_and_publishes_each_partition_apart(self) -> "Job":
        if not self.partitions:
            if "," in self.sink.partition_column:
                raise ValueError("sink.partition_column: expected one name; partitions names several columns")
            return self
        columns = ",".join(self.partitions.columns)
        if self.sink.partition_column not in ("date", columns):
            raise ValueError(
                f"sink.partition_column: expected none beside partitions, which names the columns {columns}; leave it "
                "out"
            )
        missing = self.partitions.missing_in([text for _, text in self.source.dated_texts()])
        if missing and not isinstance(self.source, JobRows):
            raise ValueError(
                f"source: expected {{partition}}, or each of {', '.join(f'{{{name}}}' for name in missing)}, found "
                "none: every partition would read the same inputs"
            )
        if self.partitions.every != "day" and self.times.offset_days != -1:
            raise ValueError(
                "schedule.offset_days: expected none beside partitions other than days: a run takes periods that have "
                "ended; leave it out"
            )
        sink = self.sink.model_copy(update={"partition_column": columns})
        object.__setattr__(self, "sink", sink)  # so that all that publish and read know the columns
        return self

    @model_validator(mode="after")
    def _publishes_to_a_place(self) -> "Job":
        if not self.state and not self.sink.place:
            raise ValueError(
                f"state: expected a directory, found none. A sink of kind {self.sink.kind} has no directory for "
                "receipts and staged rows. Set state, for example to s3://bucket/overnight/my-job"
            )
        for key, path in (("sink.path", self.sink.place), ("state", self.state)):
            if path and path.startswith("hf://"):
                raise ValueError(
                    f"{key}: expected a place to publish to, found hf://, which can only be read: it would let two "
                    "runs write at the same time. Publish to another place, and upload the partition from there"
                )
        return self

    @model_validator(mode="after")
    def _what_is_late_has_a_deadline(self) -> "Job":
        if any("late" in receiver.on for receiver in self.notify) and not self.times.deadline:
            raise ValueError("notify: expected a schedule with a deadline, because a receiver has on: late; set one")
        return self

    @model_validator(mode="after")
    def _what_costs_has_prices(self) -> "Job":
        for number, entry in enumerate(self.inference):
            if self.budget.cost and isinstance(entry, Service) and not entry.has_cost():
                raise ValueError(
                    f"budget.cost: expected the prices of each model at an endpoint, found none for inference.{number} "
                    f"({entry.shown_name()}). Set price_per_million_input_tokens and price_per_million_output_tokens, "
                    "0 for what costs nothing"
                )
        endpoints = [model for model in self.models if isinstance(model, RemoteModel)]
        if (self.budget.cost or self.budget.tokens) and not endpoints:
            raise ValueError("budget: expected a model at an endpoint for cost and tokens, found none; use minutes")
        if self.budget.cost and not any(isinstance(model, Service) for model in endpoints):
            raise ValueError(
                "budget.cost: kind: vllm has no price, so this limit is never reached; use tokens or minutes"
            )
        return self

    @model_validator(mode="after")
    def _what_is_remembered_has_a_memory(self) -> "Job":
        for entry in (*self.preprocess, *self.inference):
            if entry.remember and not self.memory:
                name = entry.shown_name() if isinstance(entry, Predictor) else entry.kind
                raise ValueError(f"remember: expected memory in the job, found none for {name}; set it")
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
        """Return True if the job has partitions of days or of `partitions`, False if its only partition is `all`."""
        return self.partitions is not None or self.source.is_dated

    @property
    def periods(self) -> Partitions | None:
        """Return the job's partitions: those of the key, or days; None if the only partition is `all`."""
        return self.partitions or (DAYS if self.source.is_dated else None)

    @property
    def models(self) -> list[Predictor]:
        """Return the models of `inference`, in order."""
        return [entry for entry in self.inference if isinstance(entry, Predictor)]

    @property
    def steps(self) -> list[Step]:
        """Return the steps before the first model: those of `preprocess`, then those at the start of `inference`."""
        return [*self.preparation, *self._steps_ahead]

    @property
    def preparation(self) -> list[Step]:
        """Return the steps of `preprocess`. If images come from files and no step decodes them, add `decode_image`.

        A first `resize_image` of `image` decodes. First steps that compare rows stay first: they compare files.
        """
        first_steps = list(takewhile(lambda step: isinstance(step, PartitionStep), self.preprocess))
        later_steps = self.preprocess[len(first_steps) :]
        steps = [*later_steps, *self._steps_ahead]
        if not self.source.holds_images or any(step.kind == "decode_image" for step in steps):
            return self.preprocess
        if steps and steps[0].kind == "resize_image" and steps[0].column == "image":
            return self.preprocess
        decode = TypeAdapter(Step).validate_python({"kind": "decode_image"})
        return [*first_steps, decode, *later_steps]

    @property
    def _steps_ahead(self) -> list[Step]:
        """Return the steps of `inference` before its first model."""
        return list(takewhile(lambda entry: not isinstance(entry, Predictor), self.inference))

    @property
    def steps_behind(self) -> list[list[Step]]:
        """Return a list for each model: the steps of `inference` up to the next model, without `last_steps`."""
        behind: list[list[Step]] = []
        for entry in self.inference[len(self._steps_ahead) : len(self.inference) - len(self.last_steps)]:
            if isinstance(entry, Predictor):
                behind.append([])
            else:
                behind[-1].append(entry)
        return behind

    @property
    def last_steps(self) -> list[PartitionStep]:
        """Return the steps behind all models that compare rows. The publish, not the stream, applies them."""
        last = list(takewhile(lambda entry: isinstance(entry, PartitionStep), reversed(self.inference)))
        return last[::-1] if self.models else []

    @property
    def times(self) -> Schedule:
        """Return the job's schedule, by default each midnight in UTC, for the partition of the day before."""
        return self.schedule or EACH_MIDNIGHT

    @property
    def receivers(self) -> list[Receiver]:
        """Return who gets messages: the block of `schedule.notify`, which is for late partitions, and `notify`."""
        block = self.times.notify
        return [*([Receiver(on=["late"], block=block)] if block else []), *self.notify]

    @property
    def offset(self) -> timedelta:
        """Return the days from the scheduled day to the partition."""
        return timedelta(days=self.times.offset_days)

    @property
    def timezone(self) -> ZoneInfo:
        """Return the time zone of the schedule."""
        return ZoneInfo(self.times.timezone)

    @property
    def state_location(self) -> Location:
        """Return the directory of the job's ledgers: `state`, or by default `_overnight` in `sink.path`."""
        return Location(self.state or f"{(self.sink.place or '').rstrip('/')}/_overnight")

    def ledger(self, partition: str) -> Location:
        """Return the directory of a partition's records: `date=D` or `all` in the job's state."""
        return self.published.ledger(partition)

    @property
    def reports(self) -> str:
        """Return the path of the newest report of each partition, for a user to read. `D` is the partition."""
        return filled_in(str(self.ledger("D" if self.is_dated else "all") / REPORT))

    @property
    def published(self) -> Outputs:
        state = self.state_location
        # A sink without a directory of its own publishes elsewhere: no file is written here.
        return Outputs(state, Location(self.sink.place) if self.sink.place else state / "published", self.sink)

    @property
    def samples(self) -> Outputs:
        state = self.state_location / "samples"
        return Outputs(state, state / "published", self.sink.of_samples(), are_samples=True)

    def outputs(self, limit_rows: int | None) -> Outputs:
        """Return the place to which a run of all rows publishes, or one with a limit."""
        return self.samples if limit_rows else self.published

    def outputs_of(self, receipt: Mapping[str, Any]) -> Outputs:
        """Return the place to which the run with this receipt or failure published."""
        return self.outputs(receipt.get("limit_rows"))

    def sink_for(self, run: Run) -> Sink:
        return self.outputs(run.limit_rows).sink

    def code(self) -> list[UserCode]:
        """Return the user's classes and functions that steps, models and checks call, in order."""
        code: list[UserCode] = []
        for leaf in (*self.preprocess, *self.inference):
            code += leaf.code()
        if self.checks.python:
            code.append(UserCode(self.checks.python, "write", given=3))
        return code

    def ingredients(self) -> dict[str, Any]:
        """Return what decides results except inputs, as JSON values: settings, and hashes of models and code."""
        return {
            "settings": self.result_settings(),
            "models": [entry.fingerprint() for entry in self.inference],
            "steps": [step.fingerprint() for step in self.preparation],
            "format_version": FORMAT_VERSION,
        }

    def commits(self) -> dict[str, str | None]:
        """Return the current commit of each hub model, by its name. None: neither the hub nor its cache answers."""
        return {name: model.hub_commit() for model in self.models if (name := model.hub_name())}

    def pinned(self, run: Run) -> "Job":
        """Return the job with each model fixed to the versions of its files and to the commit that the run recorded."""
        chain: list[ModelOrStep] = []
        for entry, files in zip(self.inference, run.ingredients["models"], strict=True):
            if isinstance(entry, Predictor):
                commit = run.commits.get(entry.hub_name() or "")
                entry = entry.pinned(files | ({COMMIT: commit} if commit else {}))  # noqa: PLW2901
            chain.append(entry)
        return self.model_copy(update={"inference": chain})

    def settings(self) -> dict[str, Any]:
        """Return all settings as JSON values for display. `${VARIABLE}` stays as it is; secrets of URLs are masked."""
        settings: dict[str, Any] = masked_in(self.model_dump(mode="json", exclude_none=True))
        return settings

    def to_yaml(self) -> str:
        """Return the job as the text of a job file, which reads back as an equal job."""
        return yaml_document(self.mapping())

    def mapping(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults, as YAML values. A job without a source has none here."""
        settings = written(self)
        if self.partitions:
            settings["sink"].pop("partition_column", None)  # it follows from `partitions`
        if settings["source"] == NO_SOURCE:
            del settings["source"]
        return settings

    def result_settings(self) -> dict[str, Any]:
        """Return the settings that change results, as JSON values, without defaults. The others are operational."""
        is_nameless = len(self.models) == 1
        inference = []
        for entry in self.inference:
            operational = ("name",) if is_nameless and isinstance(entry, Predictor) else ()
            inference.append(entry.content_settings(*operational))
        sink = self.sink.content_settings()
        return {
            "source": self.source.content_settings(),
            "shuffle": self.shuffle.content_settings(),
            "preprocess": [step.content_settings() for step in self.preparation],
            "inference": inference,
            "sink": {RECORDED_AS.get(name, name): value for name, value in sink.items()},
        }


def _check_code(model: Predictor) -> None:
    try:
        for code in model.code():
            code.check_source()
    except JobError as error:
        raise ValueError(str(error)) from None
