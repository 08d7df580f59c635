"""Whose fault an error is: a row's, unless it is one of these. Told by names, so that no library is loaded for it."""

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "resource_exhausted", "failed to allocate memory")
_DEVICE = (
    "cuda error",
    "cublas_status",
    "cudnn_status",
    "cudnn error",
    "hip error",
    "device-side assert",
    "nccl error",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a model ran out of the device's or the process's memory, which a smaller batch may avoid."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def is_device_failure(error: BaseException) -> bool:
    """Whether the accelerator failed in a way that only a new process mends (every later call would fail as well)."""
    if is_out_of_memory(error):
        return False
    if type(error).__name__ == "AcceleratorError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _DEVICE)
