"""Recognise errors of the device, or of its memory. Every other error belongs to a row.

They are recognised by name, so that no library is imported.
"""

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
    """Return True if the error shows that the device's or the process's memory was full.

    A smaller batch may avoid it.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    is_a_librarys = isinstance(error, RuntimeError) or type(error).__module__.startswith("onnxruntime.")
    return is_a_librarys and any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def is_device_failure(error: BaseException) -> bool:
    """Return True if the error shows that the accelerator is broken for this process.

    Every later call would then fail, and only a new process can continue.
    """
    if is_out_of_memory(error):
        return False
    if type(error).__name__ == "AcceleratorError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _DEVICE)
