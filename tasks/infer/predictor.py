"""What a predictor leaf declares, and the three moments of a model: load once a worker, predict once a batch.

A predictor sees NumPy arrays, one value a row, and returns the columns that it adds. It knows nothing of Ray, of hidden
columns or of rows that failed before: `worker.py` does. One that knows which of its rows failed returns an `Outcome`.
"""

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, field_validator, model_validator

from overnight.tasks.config.settings import Leaf
from overnight.tasks.infer import accelerators
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.rows.result import Outcome
from overnight.tasks.rows.tensors import to_numpy
from overnight.tasks.storage.location import Location

if TYPE_CHECKING:
    import torch

CALLS_TO_CHOOSE_FROM = 8

Batch = dict[str, np.ndarray]
Predict = Callable[[Batch], dict[str, Any] | Outcome]


@dataclass(frozen=True)
class Offer:
    """What `overnight init` offers a kind of model for.

    words: the task in a few words. column: what rows must have, `image`, `audio` or `text`. model: a usual one.
    settings: further settings, given the name of the column. whole_images: cropping would spoil them.
    """

    words: str
    column: str
    model: str
    settings: Callable[[str], dict[str, str]] = lambda column: {}
    whole_images: bool = False


class Predictor(Leaf):
    """Settings that all models share; a leaf adds `kind`, its own settings and `load`."""

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
        Field(description="Copies of the model: a number, or [min, max] to scale between; default: what fits."),
    ] = None
    num_cpus: Annotated[float | None, Field(ge=0, description="CPUs that a worker reserves; default: what fits.")] = (
        None
    )
    num_gpus: Annotated[float, Field(ge=0, description="GPUs that a worker reserves.")] = 0
    memory: Annotated[int | None, Field(gt=0, description="Bytes of memory that a worker reserves.")] = None
    accelerator_type: Annotated[str | None, Field(description="A Ray accelerator type, for example A100.")] = None
    resources: Annotated[
        dict[str, float],
        Field(
            description="Custom Ray resources that a worker reserves. Under Ray's names for accelerators (NPU, HPU, "
            "TPU, ...) the model runs on one; any other name, a licence for example, is counted and says nothing of "
            "where."
        ),
    ] = {}
    where: Annotated[
        str | None,
        Field(
            description="Runs the model only on rows that fulfil this condition, written as for filter_rows over the "
            "columns there are, those of the models before it too; the others get null."
        ),
    ] = None
    placement: Annotated[
        Literal["auto", "separate", "colocated"],
        Field(
            description="Where rows are preprocessed: in Ray tasks of their own (separate), or in the model's workers, "
            "of which there is then one a CPU (colocated). auto: colocated for the only model of a job, if it is to "
            "run on CPUs and reserves nothing.",
            json_schema_extra={"formerly": "prepare"},
        ),
    ] = "auto"

    offer: ClassVar[Offer | None] = None  # what `overnight init` offers the model for

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
        """The columns that `predict` reads; None for all. They must be there, and only they are converted."""
        return None

    def reads(self) -> list[str] | None:
        """Return what the model reads, or chooses its rows by; None for all columns."""
        inputs = self.inputs()
        if inputs is None:
            return None
        return [*inputs, *(Expression(self.where).columns if self.where else [])]

    def given(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        """What `predict` is given of a column, one value a row."""
        return to_numpy(column, writable=True)

    def rows_per_call(self) -> int:
        """Rows handed to `predict` at once: a batch, or a window of batches for models that sort by length."""
        return self.forward_batch_size()

    def rows_at_once(self) -> int:
        """Rows that a worker has in hand at once: more than a call's where only some of them are the model's."""
        return self.rows_per_call() * (CALLS_TO_CHOOSE_FROM if self.where else 1)

    def forward_batch_size(self) -> int:
        """`batch_size`, with auto resolved to a size that suits the device."""
        if self.batch_size != "auto":
            return self.batch_size
        return 64 if self.accelerators() else 16

    def describe_batch(self) -> str:
        """What the model is given in one batch, in words."""
        return str(self.forward_batch_size())

    def shown_name(self) -> str:
        """Return its name, or what else tells the model from others: the class that it is, or its kind."""
        return str(self.name or getattr(self, "target", None) or self.kind)

    def accelerators(self) -> dict[str, float]:
        """Those that a worker reserves, by Ray's names; empty where the model runs on CPUs."""
        return accelerators.reserved(self.num_gpus, self.resources)

    def torch_device(self) -> "torch.device":
        """Where a model of torch's runs. Raises `JobError` where an accelerator is reserved and torch finds none."""
        return accelerators.torch_device(self.accelerators())

    def calls_at_once(self) -> int:
        """Calls of `predict` that a worker may have under way, each from a thread of its own."""
        return 1

    def tunes_batch_size(self) -> bool:
        """Whether the best size is looked for on the sample: where it is left open, and a batch is what a call gets."""
        return self.batch_size == "auto" and self.rows_per_call() == self.forward_batch_size()

    def imports(self) -> tuple[str, ...] | None:
        """Modules that the model needs: imported once on a laptop, by a process of which all workers are forked.

        None where each worker is to be a process of Ray's: for code that calls Ray, or may start threads on import.
        """
        return None

    def fingerprint(self) -> dict[str, str]:
        """What the result depends on besides the settings: file name -> sha256 of model files or code."""
        return {}

    @abc.abstractmethod
    def load(self) -> Predict:
        """The model, ready on the worker's device; what it returns is called once a batch.

        Raises `overnight.tasks.errors.JobError` (stage "infer") when the model cannot be loaded as the settings
        describe it.
        """

    def load_with(self, log_place: Location | None) -> Predict:
        """`load`, for a model each of whose answers costs: a directory in which a run keeps them until its publish."""
        return self.load()

    def needs_warm_up(self) -> bool:
        """Whether the first call takes longer than the others, so that a trial makes one more."""
        return True


def imports(models: Sequence[Predictor]) -> list[str]:
    """Modules that these models' workers need, where they are forked."""
    return [name for model in models for name in model.imports() or ()]
