"""Recognise errors of the device, or of its memory, by name, so that no library is imported."""

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "resource_exhausted", "failed to allocate memory")
_CUDA = ("cuda error", "cublas_status", "cudnn_status", "cudnn error", "device-side assert", "nccl error")
_DEVICE = (*_CUDA, "hip error")


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if the device's or the process's memory was full. A smaller batch may avoid it."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    is_of_library = isinstance(error, RuntimeError) or type(error).__module__.startswith("onnxruntime.")
    return is_of_library and any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def is_device_failure(error: BaseException) -> bool:
    """Return True if the accelerator is broken for this process, so that only a new process can continue."""
    if is_out_of_memory(error):
        return False
    if type(error).__name__ == "AcceleratorError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _DEVICE)
