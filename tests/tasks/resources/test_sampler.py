"""The load of the machine over time, bounded in size and in cost."""

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from overnight.tasks.resources import sampler
from overnight.tasks.resources.sampler import POINTS, SAMPLED, Devices, Pace, Series, read_sample


def test_a_sample_has_the_load_of_this_machine() -> None:
    sample = read_sample(Devices())
    assert tuple(sample) == SAMPLED
    assert 0 <= (sample["cpus_busy"] or 0) <= 1
    assert (sample["memory_bytes"] or 0) > 2**20


def test_what_a_machine_does_not_report_is_null_and_costs_no_other_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise PermissionError("/proc/stat")

    library = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetUtilizationRates=refuse,  # as of a GPU with MIG
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=5),
    )
    monkeypatch.setattr(sampler, "nvml", lambda: library)
    monkeypatch.setattr(sampler.psutil, "cpu_percent", refuse)
    sample = read_sample(Devices())
    assert tuple(sample) == SAMPLED
    assert (sample["cpus_busy"], sample["devices_busy"], sample["device_memory_bytes"]) == (None, None, 10)
    assert (sample["memory_bytes"] or 0) > 2**20


def test_a_full_series_is_halved_so_that_any_run_has_a_bounded_number_of_points() -> None:
    series = Series(limit=8)
    for second in range(1000):
        series.add({"seconds": float(second), "cpus_busy": float(second % 2), "rows_infer": 10.0 * second})
        assert len(series) < 8
    assert series.step == 128
    assert set(series.columns["cpus_busy"]) == {0.5}  # the mean
    assert series.columns["seconds"] == [127.0, 255.0, 383.0, 511.0, 639.0, 767.0, 895.0]  # the last
    assert series.columns["rows_infer"][0] == 1270


def test_a_day_of_samples_takes_a_few_kilobytes_of_the_receipt() -> None:
    series = Series()
    for second in range(86_400):
        series.add({"seconds": second, "memory_bytes": 8e9 + second, "cpus_busy": 1 / 3, "devices_busy": None})
    document = series.as_json()
    assert POINTS / 2 <= len(document["seconds"]) <= POINTS
    assert document["cpus_busy"][0] == 0.33
    assert "devices_busy" not in document
    assert len(json.dumps(document)) < 8000


def test_nulls_between_numbers_stay_and_do_not_count() -> None:
    series = Series(limit=2)
    series.add({"devices_busy": None})
    series.add({"devices_busy": 0.5})
    assert series.as_json() == {"devices_busy": [0.5]}


def test_sampling_takes_at_most_one_percent_of_a_core() -> None:
    def read() -> dict[str, float | None]:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        return {"cpus_busy": 1.0}

    pace = Pace()
    due = [second for second in range(20) if pace.sample(float(second), read)]
    assert due[:2] == [0, due[1]]
    assert due[1] >= 5  # 0.05 s of 5 s
    quick = Pace()
    assert [quick.sample(moment, dict) for moment in (0.0, 0.5, 1.0)] == [True, False, True]
