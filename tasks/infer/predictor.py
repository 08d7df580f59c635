"""The interface of a predictor, and the moments of a model: load once per worker, predict once per batch.

A predictor gets NumPy arrays, one value per row, and returns the columns that it adds. It does not use Ray, hidden
columns or rows that failed before: `worker.py` does. If it knows which of its rows failed, it returns an `Outcome`.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, PrivateAttr, field_validator, model_validator

from overnight.tasks.config.settings import Leaf
from overnight.tasks.infer import accelerators
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.rows.result import Outcome
from overnight.tasks.rows.tensors import to_numpy
from overnight.tasks.storage.location import Location

if TYPE_CHECKING:
    import torch

CALLS_TO_CHOOSE_FROM = 8
COMMIT = "commit"  # the key of a hub model's commit among its pins

Batch = dict[str, np.ndarray]
Predict = Callable[[Batch], dict[str, Any] | Outcome]


@dataclass(frozen=True)
class Offer:
    """The use for which `overnight init` offers a kind of model.

    `words` is the task in a few words. `column` is the required column: `image`, `audio` or `text`. `model` is a usual
    one. `settings` are further settings, for the name of the column. `whole_images` is True if cropping would spoil
    them.
    """

    words: str
    column: str
    model: str
    settings: Callable[[str], dict[str, str]] = lambda column: {}
    whole_images: bool = False


class Predictor(Leaf):
    """The settings that all models share; a leaf adds `kind`, its own settings and `load`."""

    name: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z][A-Za-z0-9_]*$", description="Prefixes the output columns; needed with several models."
        ),
    ] = None
    batch_size: Annotated[Literal["auto"] | PositiveInt, Field(description="The rows of one call of the model.")] = (
        "auto"
    )
    workers: Annotated[
        PositiveInt | tuple[PositiveInt, PositiveInt] | None,
        Field(description="Copies of the model: a number, or [min, max] to scale between; default: as many as fit."),
    ] = None
    num_cpus: Annotated[
        float | None, Field(ge=0, description="CPUs that a worker reserves; default: the planner decides.")
    ] = None
    num_gpus: Annotated[float, Field(ge=0, description="GPUs that a worker reserves.")] = 0
    memory: Annotated[int | None, Field(gt=0, description="Bytes of memory that a worker reserves.")] = None
    accelerator_type: Annotated[str | None, Field(description="A Ray accelerator type, for example A100.")] = None
    resources: Annotated[
        dict[str, float],
        Field(
            description="Custom Ray resources that a worker reserves. Under Ray's names for accelerators (NPU, HPU, "
            "TPU, ...) the model runs on one; any other name, a licence for example, is only counted and does not "
            "affect the device."
        ),
    ] = {}
    where: Annotated[
        str | None,
        Field(
            description="Runs the model only on rows that meet this condition, in the syntax of filter_rows over the "
            "existing columns, including those of the models before it; the other rows get null."
        ),
    ] = None
    placement: Annotated[
        Literal["auto", "separate", "colocated"],
        Field(
            description="The place of preprocessing: in Ray tasks of their own (separate), or in the model's workers, "
            "one per CPU (colocated). auto: colocated for the only model of a job, if it is to "
            "run on CPUs and reserves nothing.",
            json_schema_extra={"formerly": "prepare"},
        ),
    ] = "auto"

    offer: ClassVar[Offer | None] = None  # the use for which `overnight init` offers the model

    _pins: dict[str, str] = PrivateAttr(default_factory=dict)

    operational: ClassVar[tuple[str, ...]] = (
        *("batch_size", "workers", "num_cpus", "num_gpus", "memory", "accelerator_type", "resources", "placement"),
    )

    @field_validator("where")
    @classmethod
    def _where_parses(cls, where: str | None) -> str | None:
        if where is not None:
            Expression(where)
        return where

    @model_validator(mode="after")
    def _workers_in_order(self) -> "Predictor":
        if isinstance(self.workers, tuple) and self.workers[0] > self.workers[1]:
            raise ValueError(f"workers: expected [min, max], found {list(self.workers)}")
        return self

    @model_validator(mode="after")
    def _colocated_has_a_worker_a_cpu(self) -> "Predictor":
        reserves = ("workers", "num_cpus", "num_gpus", "memory", "accelerator_type", "resources")
        if self.placement == "colocated" and (asked := [name for name in reserves if getattr(self, name)]):
            raise ValueError(f"placement: colocated gives every CPU a worker. Leave out {', '.join(asked)}")
        return self

    def inputs(self) -> list[str] | None:
        """Return the columns that `predict` reads; None for all. They must exist, and only they are converted."""
        return None

    def outputs_made(self) -> list[str] | None:
        """Return the columns that the model adds, without its prefix; None if only a run shows them."""
        return None

    def column_effect(self) -> ColumnEffect:
        """Return what the model does to columns, without its prefix."""
        made = self.outputs_made()
        in_sql = Expression(self.where).required if self.where else []
        return ColumnEffect(self.inputs() or [], in_sql, makes=made or [], makes_others=made is None)

    def reads(self) -> list[str] | None:
        """Return what the model reads, or chooses its rows by; None for all columns."""
        inputs = self.inputs()
        if inputs is None:
            return None
        return [*inputs, *(Expression(self.where).columns if self.where else [])]

    def given(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        """Return a column in the form for `predict`, one value per row."""
        return to_numpy(column, writable=True)

    def rows_per_call(self) -> int:
        """Return the rows per call of `predict`: a batch, or a window of batches for models that sort by length."""
        return self.forward_batch_size()

    def rows_at_once(self) -> int:
        """Return the rows that a worker has at a time: more than a call's if only some of them are the model's."""
        return self.rows_per_call() * (CALLS_TO_CHOOSE_FROM if self.where else 1)

    def forward_batch_size(self) -> int:
        """Return `batch_size`, with auto resolved to a size for the device."""
        if self.batch_size != "auto":
            return self.batch_size
        return 64 if self.accelerators() else 16

    def describe_batch(self) -> str:
        """Return a description of one batch for the model."""
        return str(self.forward_batch_size())

    def shown_name(self) -> str:
        """Return its name, or another name that distinguishes the model: its class, or its kind."""
        return str(self.name or getattr(self, "target", None) or self.kind)

    def accelerators(self) -> dict[str, float]:
        """Return the accelerators that a worker reserves, by Ray's names; empty if the model runs on CPUs."""
        return accelerators.reserved(self.num_gpus, self.resources)

    def torch_device(self) -> "torch.device":
        """Return the device of a torch model. Raise `JobError` if torch does not find the reserved accelerator."""
        return accelerators.torch_device(self.accelerators())

    def calls_at_once(self) -> int:
        """Return the calls of `predict` that a worker may run concurrently, each from a thread of its own."""
        return 1

    def tunes_batch_size(self) -> bool:
        """Return True if the trial finds the best batch size: the size is auto, and a call gets one batch."""
        return self.batch_size == "auto" and self.rows_per_call() == self.forward_batch_size()

    def imports(self) -> tuple[str, ...] | None:
        """Return modules that the model needs; on one machine, a process imports them once and forks all workers.

        None means that each worker is a process of Ray's: for code that calls Ray, or may start threads on import.
        """
        return None

    def fingerprint(self) -> dict[str, str]:
        """Return what the result depends on besides the settings: file name -> sha256 of model files or code."""
        return {}

    def hub_name(self) -> str | None:
        """Return the name of a model on the Hugging Face Hub, with its revision if that is set; None for others."""
        return None

    def hub_commit(self) -> str | None:
        """Return the commit that a hub model has now; None if it cannot be found out. It may send a request."""
        return None

    def warnings(self) -> list[str]:
        """Return sentences for the receipt about the settings of this model."""
        return []

    @property
    def pins(self) -> Mapping[str, str]:
        """Return the versions of the model's files that the run recorded; empty without a run.

        They are the `fingerprint` of the run, and for a hub model its commit under `COMMIT`.
        """
        return self._pins

    def pinned(self, pins: Mapping[str, str]) -> Self:
        """Return this model with the versions that a run recorded, which its workers load."""
        copy = self.model_copy()
        copy._pins = dict(pins)
        return copy

    @abc.abstractmethod
    def load(self) -> Predict:
        """Return the model, ready on the worker's device; the result is called once per batch.

        Raise `overnight.tasks.errors.JobError` (stage "infer") if the model cannot be loaded with these settings.
        """

    def load_with(self, log_place: Location | None) -> Predict:
        """Return `load` for a model with paid answers.

        `log_place` is a directory that keeps them until the run's publish.
        """
        return self.load()

    def needs_warm_up(self) -> bool:
        """Return True if the first call takes longer than the others, so that a trial makes one more."""
        return True


def imports(models: Sequence[Predictor]) -> list[str]:
    """Return the modules that these models' forked workers need."""
    return [name for model in models for name in model.imports() or ()]
