"""The check that sound has the sampling rate of a model's training."""

from collections.abc import Iterable

from overnight.tasks.errors import ContractError


def require_rate(rates: Iterable[int], expected: int, label: str) -> None:
    """Raise `ContractError` if a rate differs from `expected`, in samples per second. `label` begins its message."""
    for rate in rates:
        if rate != expected:
            raise ContractError(
                f"{label}: expected {expected} samples per second, as in the model's training, found {rate}. "
                f"Set sampling_rate: {expected} in decode_audio."
            )
