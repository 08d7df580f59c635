"""Models as users write them: the code of the leaves `python`, `torch` and `sklearn` in this suite."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

Batch = dict[str, np.ndarray]


class Buffered:
    """Write results into arrays that are allocated once, as TensorRT's samples and ONNX Runtime's IO binding do."""

    def __init__(self, form: str = "array") -> None:
        self.score, self.vector = np.zeros(64), np.zeros((64, 2), np.float32)
        self.entries: list[float] = []
        self.form = form

    def __call__(self, batch: Batch) -> Any:
        count = len(batch["x"])
        np.copyto(self.score[:count], batch["x"])
        np.copyto(self.vector[:count], np.asarray(batch["x"], np.float32)[:, None])
        self.entries[:] = self.score[:count].tolist()
        if self.form in COLUMNS:
            score, vector = COLUMNS[self.form](self.score[:count]), self.vector[:count]
            return {"score": score, "vector": list(vector) if self.form == "cells" else vector}
        return getattr(self, self.form)(count)

    def iterators(self, count: int) -> Any:
        return {"score": iter(self.entries), "vector": self._vectors(count)}

    def _vectors(self, count: int) -> Iterator[np.ndarray]:
        row = np.zeros(2, np.float32)
        for place in range(count):
            row[:] = self.vector[place]
            yield row

    def yields(self, count: int) -> Iterator[Any]:
        one = np.zeros(1)
        for place, row in enumerate(self._vectors(count)):
            one[:] = self.score[place]
            yield {"score": one, "vector": row[None]}

    def yielded_rows(self, count: int) -> Iterator[Any]:
        record: dict[str, Any] = {}
        for place, row in enumerate(self._vectors(count)):
            record |= {"score": self.entries[place], "vector": row}
            yield record

    def awaited(self, count: int) -> Any:
        row = np.zeros(2, np.float32)

        async def answer(place: int) -> Any:
            row[:] = self.vector[place]
            return {"score": self.entries[place], "vector": row}

        return [answer(place) for place in range(count)]


# Columns of other libraries over the memory of an array.
COLUMNS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda values: values,
    "cells": list,
    "arrow": pa.array,
    "frame": pd.Series,
    "nullable": lambda values: pd.arrays.FloatingArray(values, np.zeros(len(values), bool)),
    "tensor": torch.from_numpy,
}
BUFFERED = [*COLUMNS, "yields", "yielded_rows", "iterators", "awaited"]


def doubled(batch: Batch) -> dict[str, Any]:
    """Return results without a state."""
    return {"score": np.asarray(batch["x"], float) * 2}


class Scorer(torch.nn.Module):
    """A linear layer, and a number as it is."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, 2)

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(x), weight * 2


class ByName(Scorer):
    """Return a dict, as models of transformers do."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> Any:
        return {"scores": self.linear(x), "twice": weight * 2}


class Outputs(NamedTuple):
    """The outputs of `Named`."""

    scores: torch.Tensor
    twice: torch.Tensor


class Named(Scorer):
    """Return a named tuple."""

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> Any:
        return Outputs(self.linear(x), weight * 2)


class Reused(torch.nn.Module):
    """Write each result into memory that is allocated once. Images of several sizes come in several calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("means", torch.zeros(64))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        means = self.means[: len(image)]
        means.copy_(image.float().mean((1, 2, 3)))
        return means


class ReusedEstimator:
    """An estimator that writes its predictions into memory that is allocated once."""

    def __init__(self) -> None:
        self.predictions = np.zeros(64)

    def predict(self, table: Any) -> np.ndarray:
        predictions = self.predictions[: len(table)]
        np.copyto(predictions, table["x"])
        return predictions
