"""Forecasts of runs, whose intervals of 80 % hold for about 80 % of simulated runs."""

import math
import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from overnight.flows.ledger.forecast import (
    Experience,
    Forecast,
    Pace,
    expected_rows,
    experience,
    run_cost,
    run_seconds,
    time_left,
    together,
)
from overnight.tasks.engine.progress import Interval, Progress, StageProgress

START = datetime.fromisoformat("2026-11-28T07:16:25+00:00")


def receipt(rows: int = 12_000, rate: float = 200.0, overhead: float = 15.0, number: int = 0, **changes: Any) -> Any:
    """A receipt of a run whose publish took a fifth of its overhead."""
    seconds = overhead + rows / rate
    end = START + timedelta(days=number, seconds=seconds)
    stream = end - timedelta(seconds=overhead / 5)
    return {
        "rows_in": rows,
        "rows_resumed": 0,
        "seconds": seconds,
        "fingerprint": "f",
        "finished_at": end.isoformat(),
        "stages": {"shuffle": {"finished_at": None}, "write": {"finished_at": stream.isoformat()}},
        "performance": {"rows_per_second_streaming": rate},
        **changes,
    }


def test_without_receipts_nothing_is_forecast() -> None:
    assert run_seconds(Experience(), 100) is None
    assert expected_rows(Experience(), 100) is None
    assert time_left(Experience(), Pace([(0.0, 0)], 100)) is None


def test_a_run_takes_its_start_and_its_rows_over_the_rate() -> None:
    earlier = experience([receipt(rows) for rows in (1000, 3000, 12_000)], "f")
    seconds = run_seconds(earlier, 6000)
    assert seconds
    assert seconds.seconds == pytest.approx(15 + 6000 / 200)
    assert seconds.low < 45 < seconds.high < 70


def test_the_interval_is_wide_after_one_receipt_and_narrow_after_many_equal_ones() -> None:
    one, many = (run_seconds(experience([receipt(number=i) for i in range(count)], "f"), 12_000) for count in (1, 14))
    assert one
    assert many
    assert one.high / one.low > 2
    assert many.high / many.low < 1.35


def test_receipts_of_other_settings_count_only_while_there_are_no_others_and_then_little() -> None:
    other = receipt(rate=50.0, fingerprint="g")
    assert experience([other, receipt()], "f").timings["rate"].tolist() == [200.0]
    unlike, alike = run_seconds(experience([other], "f"), 100), run_seconds(experience([other], "g"), 100)
    assert unlike
    assert alike
    assert unlike.high > alike.high


def test_samples_retries_and_resumed_rows_give_no_rate() -> None:
    unusable = [receipt(limit_rows=5), receipt(retried={}), receipt(rows_resumed=12_000), {"status": "published"}]
    assert len(experience(unusable).timings) == 0


def test_rows_that_a_manifest_does_not_have_follow_from_its_bytes_or_from_the_median() -> None:
    with_bytes = experience([receipt(1000, bytes_in=10_000), receipt(2000, bytes_in=20_000)])
    assert expected_rows(with_bytes, 50_000) == 5000
    assert expected_rows(with_bytes, None) == 1500
    assert expected_rows(experience([receipt(1000)]), 50_000) == 1000


def test_an_unknown_number_of_rows_makes_the_interval_wider() -> None:
    earlier = experience([receipt(rows) for rows in (1000, 3000, 12_000, 30_000)], "f")
    unknown, known = run_seconds(earlier, None), run_seconds(earlier, 7500)
    assert unknown
    assert known
    assert unknown.high - unknown.low > 2 * (known.high - known.low)


def test_cost_follows_from_the_sums_of_the_columns_of_chat_models() -> None:
    columns = {"cost": {"sum": 3.0}, "judge_cost": {"sum": 1.0}, "costume": {"sum": 100}, "text": {}}
    columns |= {"prompt_tokens": {"sum": 9}, "judge_prompt_tokens": {"sum": 9}, "shipping_cost": {"sum": 70.0}}
    earlier = experience([receipt(1000, columns=columns)])
    assert run_cost(earlier, 500) == 2.0
    assert run_cost(earlier, None) is None
    resumed = receipt(1000, columns=columns, rows_resumed=900)  # the sum is that of all rows
    assert run_cost(experience([resumed]), 500) == 2.0
    spent = receipt(1000, columns={"cost": {"sum": 4.0}, "unit_cost": {"sum": 9.0}}, spent={"cost": 4.0})
    assert run_cost(experience([spent]), 500) == 2.0, "its sink leaves the tokens out"
    assert run_cost(experience([receipt()]), 500) is None


def test_several_runs_one_after_the_other_are_relatively_more_certain_than_one() -> None:
    total = together([Interval(10.0, 5.0, 20.0)] * 8)
    assert total
    assert total.seconds == 80
    assert 40 < total.low < 80 < total.high < 160
    assert together([]) is None


def test_before_the_first_rows_the_rest_of_the_start_is_ahead() -> None:
    earlier = experience([receipt()] * 3, "f")
    first, later = (time_left(earlier, Pace([(0.0, 0), (at, 0)], 12_000)) for at in (1.0, 11.0))
    assert first
    assert later
    assert first.seconds == pytest.approx(74)
    assert later.seconds == pytest.approx(64)


def test_a_run_that_is_slower_than_the_earlier_ones_is_soon_forecast_by_its_own_rate() -> None:
    earlier = experience([receipt()], "f")
    moments = [(float(second), 20 * max(second - 5, 0)) for second in range(120)]
    left = time_left(earlier, Pace(moments, 12_000))
    assert left
    assert left.low < (12_000 - moments[-1][1]) / 20 < left.high
    assert left.seconds == pytest.approx((12_000 - moments[-1][1]) / 20, rel=0.2)


def test_rows_that_are_counted_a_block_at_a_time_are_not_ahead_while_they_are_done() -> None:
    moments = [(float(second), 500 * (second // 5)) for second in range(35)]  # 100 rows per second, at 34 s 3,000
    left = time_left(Experience(), Pace(moments, 4000))
    assert left
    assert left.low < (4000 - 3400) / 100 + 1 < left.high
    assert left.seconds < 8


def test_the_progress_of_a_job_without_models_is_forecast_by_its_last_stage() -> None:
    forecast = Forecast(Experience())
    left = None
    for second in range(60):
        stages = {"ingest": StageProgress(1000), "preprocess": StageProgress(10 * second), "write": StageProgress()}
        left = forecast.added_to(Progress(float(second), stages, 1000)).time_left
    assert left
    assert left.seconds == pytest.approx(41 + 1, rel=0.05)
    assert forecast.added_to(Progress(60.0, stages, 1000, is_complete=True)).time_left is None


def test_the_size_of_the_inputs_gives_the_rows_of_files_of_unknown_length() -> None:
    earlier = experience([receipt(rows=1000, rate=10.0, bytes_in=50_000, number=number) for number in range(3)])
    progress = Progress(5.0, {"infer": StageProgress(0), "write": StageProgress()})
    assert Forecast(earlier).added_to(progress).time_left is None
    left = Forecast(earlier, size=100_000).added_to(progress).time_left
    assert left
    assert left.seconds == pytest.approx(2000 / 10, rel=0.1)


def simulate(
    chance: random.Random, rows: int, spread: float, noise: float
) -> tuple[list[tuple[float, int]], float, Any]:
    """Return the moments of a simulated run at each second, its seconds and its receipt."""
    rate, overhead = (usual * math.exp(chance.gauss(0, spread)) for usual in (200.0, 20.0))
    second, count, moments = 0, 0, [(0.0, 0)]
    while count < rows:
        second += 1
        if second > 0.8 * overhead:
            count = min(rows, count + int(rate * math.exp(chance.gauss(0, noise))))
        moments.append((float(second), count))
    seconds = second + 0.2 * overhead
    return moments, seconds, receipt(rows, rows / (seconds - overhead), overhead)


@pytest.mark.parametrize("spread", [0.15, 0.3])
@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_seven_to_nine_of_ten_simulated_runs_end_within_the_interval(spread: float, noise: float) -> None:
    chance, hits, left_hits = random.Random(7), list[bool](), list[bool]()
    for _ in range(40):
        receipts: list[Any] = []
        for number in range(10):
            rows = int(math.exp(chance.uniform(math.log(1000), math.log(30_000))))
            moments, seconds, left = simulate(chance, rows, spread, noise)
            earlier = experience(receipts, "f")
            if number >= 3 and (forecast := run_seconds(earlier, rows)):
                hits.append(forecast.low <= seconds <= forecast.high)
                half = moments[: len(moments) // 2]
                rest = time_left(earlier, Pace(half, rows))
                assert rest
                left_hits.append(rest.low <= seconds - half[-1][0] <= rest.high)
            receipts.append(left)
    assert 0.7 <= sum(hits) / len(hits) <= 0.93
    assert 0.7 <= sum(left_hits) / len(left_hits) <= 0.95
