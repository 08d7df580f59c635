"""Sample the load of a machine: CPUs, memory, Ray's object store and devices, for at most 1 % of a core.

A sample is one row of `SAMPLED` numbers, null if unknown. `Series` keeps at most `POINTS` rows of any run: when it is
full, two neighbours become one. The memory in use counts, whatever process uses it.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil
import ray

from overnight.tasks.resources.ray_internals import nvml

POINTS = 240  # a timeline of 800 pixels shows no more, and a receipt with 240 is 10 KB larger
SHARE_OF_CORE = 0.01
SECONDS_BETWEEN = 1.0
SAMPLED = ("cpus_busy", "memory_bytes", "object_store_bytes", "devices", "devices_busy", "device_memory_bytes")
SUMS = ("seconds", "rows")  # of these, two points keep the later value; of all others, the mean

Sample = Mapping[str, float | None]


def read_sample(devices: "Devices | None" = None) -> dict[str, float | None]:
    """Return the load of this machine since the last call, in fractions of 1 and bytes; `devices` are in use by Ray.

    The object store and the devices are those of the cluster. `cpus_busy` of the first call in a thread is 0.
    """
    sample: dict[str, float | None] = dict.fromkeys(SAMPLED)
    with contextlib.suppress(OSError, psutil.Error):  # a container may hide /proc/stat
        sample["cpus_busy"] = psutil.cpu_percent() / 100
    with contextlib.suppress(OSError, psutil.Error):
        sample["memory_bytes"] = psutil.virtual_memory().used
    if ray.is_initialized():
        total, free = ray.cluster_resources(), ray.available_resources()
        for name, resource in (("object_store_bytes", "object_store_memory"), ("devices", "GPU")):
            if resource in total:
                sample[name] = total[resource] - free.get(resource, 0.0)
    if devices:
        sample |= devices.read()
    return sample


class Devices:
    """The GPUs of this machine, as NVIDIA's library reports them. It is false without the library or a GPU."""

    def __init__(self) -> None:
        self._library: Any = None
        self._handles: list[Any] = []
        try:
            self._library = nvml()
            self._library.nvmlInit()
            count = self._library.nvmlDeviceGetCount()
            self._handles = list(map(self._library.nvmlDeviceGetHandleByIndex, range(count)))
        except Exception:  # the library raises errors of its own without a driver
            return

    def __len__(self) -> int:
        return len(self._handles)

    def read(self) -> dict[str, float | None]:
        """Return the mean fraction of time in which the devices computed lately, and the memory in use on all."""
        percent = self._sum(lambda handle: self._library.nvmlDeviceGetUtilizationRates(handle).gpu)
        memory = self._sum(lambda handle: self._library.nvmlDeviceGetMemoryInfo(handle).used)
        return {"devices_busy": None if percent is None else percent / 100 / len(self), "device_memory_bytes": memory}

    def _sum(self, read: Callable[[Any], float]) -> float | None:
        """Return the sum over all devices; None if one has no such figure: MIG has no utilization."""
        try:
            return sum(map(read, self._handles))
        except Exception:  # the library raises errors of its own
            return None


@dataclass
class Series:
    """Samples in the order of time, as columns of at most `limit` numbers; a number sums up `step` samples."""

    limit: int = POINTS
    step: int = 1
    columns: dict[str, list[float | None]] = field(default_factory=dict)
    _waiting: list[Sample] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        """Add a sample, which has the same names as those before it."""
        self._waiting.append(sample)
        if len(self._waiting) < self.step:
            return
        for name in sample:
            values = [waiting[name] for waiting in self._waiting]
            self.columns.setdefault(name, []).append(_merged(name, values))
        self._waiting = []
        if len(self) >= self.limit:
            self._halve()

    def __len__(self) -> int:
        return max(map(len, self.columns.values()), default=0)

    def _halve(self) -> None:
        self.step *= 2
        for name, values in self.columns.items():
            pairs = zip(values[::2], values[1::2], strict=True)
            self.columns[name] = [_merged(name, list(pair)) for pair in pairs]

    def as_json(self) -> dict[str, list[float | None]]:
        """Return the columns with numbers that are rounded for a receipt, without columns that have only nulls."""
        document = {}
        for name, values in self.columns.items():
            if any(value is not None for value in values):
                document[name] = list(map(_rounded, values))
        return document


def _merged(name: str, values: list[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return None
    return numbers[-1] if name.partition("_")[0] in SUMS else sum(numbers) / len(numbers)


def _rounded(value: float | None) -> float | None:
    if value is None or value > 1000:  # bytes and rows
        return None if value is None else round(value)
    return round(value, 2)


@dataclass
class Pace:
    """When the next sample is due: `least` seconds after the last, or later if that took more than 1 % of them."""

    least: float = SECONDS_BETWEEN
    due: float = 0.0
    latest: dict[str, float | None] = field(default_factory=dict)

    def sample(self, now: float, read: Callable[[], dict[str, float | None]]) -> bool:
        """Call `read` if a sample is due at `now`, keep its result in `latest`, and return True if it was due."""
        if now < self.due:
            return False
        start = time.thread_time()
        self.latest = read()
        cost = time.thread_time() - start
        self.due = now + max(self.least, cost / SHARE_OF_CORE)
        return True
