"""Models as users write them: the code of the leaves `python`, `torch` and `sklearn` in this suite."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
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
        return getattr(self, self.form.replace(" ", "_"))(count)

    def array(self, count: int) -> Any:
        return {"score": self.score[:count], "vector": self.vector[:count]}

    def cells(self, count: int) -> Any:
        return {"score": list(self.score[:count]), "vector": list(self.vector[:count])}

    def arrow(self, count: int) -> Any:
        return {"score": pa.array(self.score[:count]), "vector": self.vector[:count]}

    def frame(self, count: int) -> Any:
        import pandas as pd

        return {"score": pd.Series(self.score[:count]), "vector": self.vector[:count]}

    def nullable(self, count: int) -> Any:
        import pandas as pd

        mask = np.zeros(count, bool)
        return {"score": pd.arrays.FloatingArray(self.score[:count], mask), "vector": self.vector[:count]}

    def tensor(self, count: int) -> Any:
        return {"score": torch.from_numpy(self.score)[:count], "vector": torch.from_numpy(self.vector)[:count]}

    def entries_of_a_list(self, count: int) -> Any:
        return {"score": self.entries, "vector": self.vector[:count]}

    def yields(self, count: int) -> Iterator[Any]:
        row, one = np.zeros((1, 2), np.float32), np.zeros(1)
        for place in range(count):
            row[:], one[:] = self.vector[place], self.score[place]
            yield {"score": one, "vector": row}

    def yielded_rows(self, count: int) -> Iterator[Any]:
        row = np.zeros(2, np.float32)
        record = {"score": 0.0, "vector": row}
        for place in range(count):
            row[:], record["score"] = self.vector[place], self.entries[place]
            yield record

    def iterators(self, count: int) -> Any:
        return {"score": iter(self.entries), "vector": self._rows(count)}

    def _rows(self, count: int) -> Iterator[np.ndarray]:
        row = np.zeros(2, np.float32)
        for place in range(count):
            row[:] = self.vector[place]
            yield row

    def awaited(self, count: int) -> Any:
        row = np.zeros(2, np.float32)

        async def answer(place: int) -> Any:
            row[:] = self.vector[place]
            return {"score": self.entries[place], "vector": row}

        return [answer(place) for place in range(count)]


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
