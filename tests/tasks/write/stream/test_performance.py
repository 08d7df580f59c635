"""The sentence about what bounded a run, for runs whose bound is known."""

import pytest

from overnight.tasks.write.stream.performance import Capacity, bottleneck, engine_figures

Stages = dict[str, dict[str, float]]


def stages(ingest: float, preprocess: float, infer: float, rows: int = 1000, write: float = 1.0) -> Stages:
    seconds = {"ingest": ingest, "shuffle": 0.0, "preprocess": preprocess, "infer": infer, "write": write}
    return {stage: {"seconds": found, "rows": rows, "bytes": 0} for stage, found in seconds.items()}


@pytest.mark.parametrize(
    ("found", "capacity", "start", "bound", "advice"),
    [
        (stages(2, 130, 50), Capacity(2, 0), 5, "preprocessing", "preprocess-bound (71% of the work): add CPUs"),
        (stages(2, 50, 130), Capacity(2, 0), 5, "the model", "model-bound (71% of the work): add CPUs, or a GPU"),
        (stages(130, 2, 50), Capacity(2, 0), 5, "reading", "read-bound"),
        (stages(1, 1, 1), Capacity(2, 0), 60, "start-up", "60 of 100 s"),
        (stages(1, 1, 1), Capacity(2, 0), 5, "waiting", "no measured stage, but by waiting: check"),
        (stages(1, 50, 80, write=150), Capacity(2, 0), 5, "writing", "write-bound: check the sink's storage"),
        (stages(2, 200, 30, write=150), Capacity(16, 1), 0, "writing", "write-bound: the GPUs waited 70% of the time;"),
        (stages(1, 50, 130, write=150), Capacity(2, 0), 5, "the model", "model-bound"),
        (stages(2, 1400, 28), Capacity(16, 1), 0, "preprocessing", "the GPUs waited 72% of the time; add CPUs"),
        (stages(2, 200, 95), Capacity(16, 1), 0, "the model", "add GPUs"),
        (stages(50, 2, 20), Capacity(16, 1), 0, "reading", "the GPUs waited 80% of the time; put the data nearer"),
    ],
)
def test_what_demands_most_of_its_capacity_is_the_bound(
    found: Stages, capacity: Capacity, start: float, bound: str, advice: str
):
    made = bottleneck(found, capacity, 100, start)
    assert made["bounded_by"] == bound
    assert advice in made["advice"]


def test_the_work_on_the_first_rows_is_no_start_up():
    all_in_one = bottleneck(stages(0, 0, 16), Capacity(2, 0), 21, 20.5, first_rows=1000)
    assert (all_in_one["start_seconds"], all_in_one["bounded_by"]) == (4.5, "the model")
    assert "on few workers" in all_in_one["advice"]
    a_tenth = bottleneck(stages(0, 0, 160), Capacity(2, 0), 100, 20, first_rows=100)
    assert (a_tenth["start_seconds"], a_tenth["cpus_busy"]) == (4, 0.833)


def test_rates_and_the_limit_are_rows_a_second():
    made = bottleneck(stages(0, 100, 60), Capacity(2, 0), 100, 0)
    assert (made["rows_per_second"], made["limit_rows_per_second"], made["fraction_of_limit"]) == (10, 12.5, 0.8)
    assert (made["cpus_busy"], made["gpus_busy"], made["device_seconds"]) == (0.8, None, 0)
    made = bottleneck(stages(0, 160, 50), Capacity(16, 1), 100, 0)
    assert (made["cpus_busy"], made["gpus_busy"], made["limit_rows_per_second"]) == (0.1, 0.5, 20)
    assert made["device_seconds"] == 50


def test_a_run_with_nothing_left_to_do_has_a_verdict_too():
    made = bottleneck(stages(0, 0, 0, rows=0), Capacity(2, 0), 0, 0)
    assert (made["rows_per_second"], made["limit_rows_per_second"], made["fraction_of_limit"]) == (0, None, None)


def test_the_counters_of_engines_become_rates_and_days_of_gpus():
    counted = {
        "prompt_tokens": 8e6, "generated_tokens": 2e6, "prefix_tokens": 8e6, "cached_tokens": 6e6, "preemptions": 3,
    }  # fmt: skip
    figures = engine_figures({"big": counted, "small": {"prompt_tokens": 10.0}}, {"big": 4.0}, 1000.0)
    assert figures["big"] == {
        "prompt_tokens": 8_000_000,
        "generated_tokens": 2_000_000,
        "cached_tokens": 6_000_000,
        "prefix_hit_rate": 0.75,
        "preemptions": 3,
        "prompt_tokens_per_second": 8000,
        "generated_tokens_per_second": 2000,
        "gpu_days_per_billion_generated_tokens": 23.15,  # 4 GPUs for 1000 s make two million tokens
    }
    assert (figures["small"]["prefix_hit_rate"], figures["small"]["generated_tokens_per_second"]) == (None, 0)
    assert figures["small"]["gpu_days_per_billion_generated_tokens"] is None
    assert engine_figures({"big": counted}, {"big": 4.0}, 0.0)["big"]["prompt_tokens_per_second"] is None
