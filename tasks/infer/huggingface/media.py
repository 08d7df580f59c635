"""The checks of a row's image or sound before a model of transformers gets it."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from overnight.tasks.errors import ContractError, RowError


def require_image(image: Any) -> np.ndarray:
    """Return `image` if it is a uint8 array of H x W x 3. Raise `RowError` if it is not."""
    if not isinstance(image, np.ndarray):
        raise RowError(f"image: expected a uint8 array of H x W x 3, found {type(image).__name__}.")
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise RowError(f"image: expected a uint8 array of H x W x 3, found {image.dtype} {image.shape}.")
    return image


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
