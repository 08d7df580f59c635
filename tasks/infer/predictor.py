"""The interface of a predictor, which is a model of a job: it is loaded once per worker, and called once per batch.

A predictor gets NumPy arrays, one value per row, and returns the columns that it adds. It does not use Ray, hidden
columns or rows that failed before: `worker.py` does. A predictor that finds out which rows fail returns an `Outcome`.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt, PrivateAttr, field_validator, model_validator

from overnight.tasks.config.settings import AdjustableFlag, AdjustableText
from overnight.tasks.infer.devices import Reservation
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.rows.result import Outcome
from overnight.tasks.rows.tensors import to_numpy
from overnight.tasks.storage.location import Location

if TYPE_CHECKING:
    import torch

CALLS_TO_CHOOSE_FROM = 8
COMMIT = "commit"  # the key of a hub model's commit among its pins
BESIDE = " + "  # between the names of models that one engine answers

Batch = dict[str, np.ndarray]
Predict = Callable[[Batch], dict[str, Any] | Outcome]


@dataclass(frozen=True)
class Offer:
    """The entry of a kind of model in `overnight init`, which offers kinds by their use."""

    words: str  # the task
    column: str  # that the model needs: `image`, `audio`, `text` or `any`
    model: str  # the hub name of a usual model; empty if there is none
    # from the column's name, further settings; None leaves out a setting of the job that ships
    settings: Callable[[str], dict[str, Any]] = lambda column: {}
    whole_images: bool = False  # cropped images would spoil the result
    architecture: str = ""  # the `model_type` in the config of the usual model


class Predictor(Reservation):
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
    where: Annotated[
        AdjustableText | None,
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

    remember: Annotated[
        bool | None,
        Field(
            description="Takes results of earlier runs from the job's memory, and leaves new ones there; default: if "
            "there is a memory, and the model draws no answers at random."
        ),
    ] = None

    operational: ClassVar[tuple[str, ...]] = ("batch_size", "placement", "remember")

    @field_validator("where")
    @classmethod
    def _where_parses(cls, where: str | None) -> str | None:
        if where is not None:
            Expression(where)
        return where

    @model_validator(mode="after")
    def _colocated_has_a_worker_a_cpu(self) -> "Predictor":
        reserves = ("workers", "num_cpus", "num_gpus", "memory", "accelerator_type", "resources")
        names = [name for name in reserves if getattr(self, name)]
        if self.placement == "colocated" and names:
            raise ValueError(f"placement: colocated gives every CPU a worker. Leave out {', '.join(names)}")
        return self

    def inputs(self) -> list[str] | None:
        """Return the names of the columns that the model gets, which must exist; None for all columns."""
        return None

    def outputs_made(self) -> list[str] | None:
        """Return the names of the columns that the model adds, without its prefix; None if only a run shows them."""
        return None

    def column_effect(self) -> ColumnEffect:
        """Return which columns the model reads and adds, as its settings show them, without its prefix."""
        outputs = self.outputs_made()
        in_sql = Expression(self.where).required if self.where else []
        in_text = self.prompt_columns()
        return ColumnEffect(
            self.inputs() or [], in_sql, makes=outputs or [], makes_others=outputs is None, in_text=in_text
        )

    def reads(self) -> list[str] | None:
        """Return the names of the columns that the model reads or its `where` names; None for all columns."""
        inputs = self.inputs()
        if inputs is None or not self.where:
            return inputs
        return [*inputs, *Expression(self.where).columns]

    def given(self, name: str, column: pa.ChunkedArray) -> np.ndarray:
        """Return the column `name` as the NumPy array that the model gets, one value per row."""
        return to_numpy(column, writable=True)

    def rows_per_call(self) -> int:
        """Return the rows of one call: a batch, or a window of several batches if the model sorts rows by length."""
        return self.forward_batch_size()

    def rows_at_once(self, per_call: int) -> int:
        """Return the rows that a worker takes for calls of `per_call` rows: more if `where` selects some of them."""
        return per_call * (CALLS_TO_CHOOSE_FROM if self.where else 1)

    def forward_batch_size(self) -> int:
        """Return the number of rows in a batch: `batch_size`, or a default for the worker's device if it is auto."""
        if self.batch_size != "auto":
            return self.batch_size
        return 64 if self.accelerators() else 16

    def describe_batch(self) -> str:
        """Return the size of a batch as text, for the description of the plan."""
        return str(self.forward_batch_size())

    def shown_name(self) -> str:
        """Return the name of the model for messages: its `name`, otherwise its `target`, otherwise its `kind`."""
        return str(self.name or getattr(self, "target", None) or self.kind)

    def calls_at_once(self) -> int:
        """Return how many calls of the model a worker may run concurrently, each in a thread of its own."""
        return 1

    def tunes_batch_size(self) -> bool:
        """Return True if the batch size is found while the stream runs: a call of the model gets one batch."""
        return self.batch_size == "auto" and self.rows_per_call() == self.forward_batch_size()

    def serves(self, later: "Predictor") -> bool:
        """Return True if the engine that this model loads also answers `later`, a later model of the job."""
        return False

    def imports(self) -> tuple[str, ...] | None:
        """Return the names of the modules that the model needs, imported once by the process that forks its workers.

        Return None for a model whose code calls Ray, or may start threads on import: its workers must not be forked.
        """
        return None

    def fingerprint(self) -> dict[str, str]:
        """Return what results depend on besides the settings: file name -> version of each file of model or code."""
        return {}

    def is_random(self) -> bool:
        """Return True if the same row may get another answer each time, because the answer is drawn at random."""
        return False

    def not_remembered(self) -> str | None:
        """Return why a job's memory does not have the results of this model, or None."""
        if self.remember is False:
            return "remember is false"
        if getattr(self, "batch", None):
            return "its requests are sent in batches before any row is looked up"
        if self.is_random() and not self.remember:
            return "its answers are drawn at random; remember: true keeps the first ones"
        return None

    def addresses(self) -> dict[str, str]:
        """Return where a service answers, with variables filled in, for the key of remembered rows."""
        return {}

    def hub_name(self) -> str | None:
        """Return `name` or `name@revision` of a model on the Hugging Face Hub; None for other models."""
        return None

    def hub_commit(self) -> str | None:
        """Return the commit that a hub model has now, or None if it cannot be found out. This may send a request."""
        return None

    def warnings(self) -> list[str]:
        """Return warnings about the settings of this model, as sentences for the receipt."""
        return []

    @property
    def pins(self) -> Mapping[str, str]:
        """Return the `fingerprint` from the run's start, and the commit of a hub model; empty without a run."""
        return self._pins

    def pinned(self, pins: Mapping[str, str]) -> Self:
        """Return a copy of this model whose workers load the versions in `pins`."""
        copy = self.model_copy()
        copy._pins = dict(pins)
        return copy

    def for_preview(self) -> "Predictor":
        """Return this model as a preview runs it, in front of its user: it does not wait long for a service."""
        return self

    def remarks(self) -> list[str]:
        """Return sentences about settings that work and could be better, for `overnight validate`."""
        return []

    def prompt_columns(self) -> list[str]:
        """Return the names of the columns whose values become text in a prompt."""
        return []

    @abc.abstractmethod
    def load(self) -> Predict:
        """Load the model onto the worker's device, and return the function that is called with each batch.

        It takes column name -> array, and returns the added columns, one value per row. Raise `JobError` on failure.
        """

    def load_with(self, log_place: Location | None) -> Predict:
        """Load the model for a run. A model with paid answers keeps them in `log_place` until the run publishes.

        So a resumed run does not pay for them again. None keeps no answers.
        """
        return self.load()

    def needs_warm_up(self) -> bool:
        """Return True if the first call takes longer than later ones. A trial then calls the model once more."""
        return True


class TorchPredictor(Predictor):
    """A model that a worker loads with PyTorch."""

    exact_float32: Annotated[
        AdjustableFlag,
        Field(description="Never shortens float32 to TF32, as PyTorch does in convolutions on NVIDIA GPUs: slower."),
    ] = False

    @model_validator(mode="after")
    def _exact_numbers_are_float32(self) -> "TorchPredictor":
        dtype = getattr(self, "dtype", None)
        if self.exact_float32 and dtype not in (None, "float32"):
            raise ValueError(f"exact_float32: expected dtype: float32, found {dtype}. Leave one of them out")
        return self

    def torch_device(self) -> "torch.device":
        import torch

        if self.exact_float32:  # both are settings of every version since 2.6
            torch.set_float32_matmul_precision("highest")
            torch.backends.cudnn.allow_tf32 = False
        return super().torch_device()


def by_engine(models: Sequence[Predictor]) -> list[list[Predictor]]:
    """Return the models in their order, in groups: the engine of a group's first model answers them all."""
    groups: list[list[Predictor]] = []
    for model in models:
        if groups and groups[-1][0].serves(model):
            groups[-1].append(model)
        else:
            groups.append([model])
    return groups


def engines(models: Sequence[Predictor]) -> list[Predictor]:
    """Return for each engine its first model, with the names of all that it answers: these have workers."""
    first_models = []
    for group in by_engine(models):
        name = BESIDE.join(model.shown_name() for model in group)
        first_models.append(group[0].model_copy(update={"name": name}) if len(group) > 1 else group[0])
    return first_models


def imports(models: Sequence[Predictor]) -> list[str]:
    """Return the names of the modules that the forked workers of these models need."""
    names: list[str] = []
    for model in models:
        names += model.imports() or ()
    return names
