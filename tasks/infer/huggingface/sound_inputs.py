"""Sound as input of a model: samples of one channel, at the sampling rate of the model's training."""

from collections.abc import Iterable

import numpy as np

from overnight.tasks.errors import ContractError, RowError


def require_rate(rates: Iterable[int], expected: int, label: str) -> None:
    """Raise `ContractError` if a rate differs from `expected`, in samples per second. `label` begins its message."""
    for rate in rates:
        if rate != expected:
            raise ContractError(
                f"{label}: expected {expected} samples per second, as in the model's training, found {rate}. "
                f"Set sampling_rate: {expected} in decode_audio."
            )


def channel(samples: np.ndarray, column: str) -> np.ndarray:
    """Return samples of one channel with one dimension. Raise `RowError` for several channels."""
    if samples.ndim != 1 and samples.shape[0] != 1:
        shape = " x ".join(map(str, samples.shape))
        raise RowError(f"{column}: expected sound of one channel, found shape {shape}.")
    return samples.reshape(-1)
