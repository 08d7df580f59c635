"""Measure what the samples of a run's load cost: `python benchmarks/sampler.py [--seconds 60]`.

It samples a local Ray as often as a run does. The cost is the CPU seconds of this process and of Ray's GCS, which
answers two questions for each sample, less those of the same time without samples.
"""

import argparse
import time

import psutil
import ray

from overnight.tasks.resources.sampler import Devices, Pace, Series, read_sample


def cpu_seconds() -> float:
    """Return the CPU seconds so far of this process and of Ray's GCS."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    total = 0.0
    for process in processes:
        if process.pid == psutil.Process().pid or "gcs_server" in process.name():
            times = process.cpu_times()
            total += times.user + times.system
    return total


def measure(seconds: float, is_sampled: bool) -> tuple[float, int]:
    """Return the CPU seconds in this time, and the number of samples."""
    devices, pace, series, count = Devices(), Pace(), Series(), 0
    before, start = cpu_seconds(), time.monotonic()
    while (elapsed := time.monotonic() - start) < seconds:
        if is_sampled and pace.sample(elapsed, lambda: read_sample(devices)):
            series.add({"seconds": elapsed, **pace.latest})
            count += 1
        time.sleep(1.0)
    series.as_json()
    return cpu_seconds() - before, count


def main() -> None:
    """Print the cost of a sample and the share of a core."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    ray.init(include_dashboard=False, log_to_driver=False)
    idle, _ = measure(options.seconds, is_sampled=False)
    busy, count = measure(options.seconds, is_sampled=True)
    cost = max(busy - idle, 0.0)
    print(
        f"{count} samples in {options.seconds:g} s: {1000 * cost / max(count, 1):.1f} ms of CPU each, "
        f"{cost / options.seconds:.2%} of a core"
    )


if __name__ == "__main__":
    main()
