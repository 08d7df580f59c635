"""Estimates from the rows of a preview: sums with intervals, the rows of the listing, and the bound of an overrun."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overnight.flows.estimate import estimate, estimate_of, overrun
from overnight.flows.job.model import Job
from overnight.flows.preview import Preview, preview
from tests import jobs
from tests.flows.conftest import parquet, write_parquet
from tests.tasks.infer.chat_server import chat_server

PRICES = {"price_per_million_input_tokens": 1_000_000, "price_per_million_output_tokens": 2_000_000}


def asking(url: str = "http://127.0.0.1:9/v1", **settings: Any) -> dict[str, Any]:
    return {"kind": "openai", "model": "small", "user": "{text}", "base_url": url, "max_new_tokens": 5, **settings}


def job_of(folder: Path, *models: dict[str, Any], **sections: Any) -> Job:
    return jobs.load(folder, source=parquet(folder), inference=list(models), **sections)


def rows_of(columns: dict[str, list[Any]], read: int, **seconds: float) -> Preview:
    return Preview("j", "all", pa.table(columns), pa.table({}), pa.table({}), 0, seconds, rows_read=read)


def test_a_sum_of_rows_grows_with_the_rows_that_were_read_and_not_with_those_that_came_through(tmp_path: Path) -> None:
    job = job_of(tmp_path, asking(**PRICES))
    columns = {"prompt_tokens": [7, 9, None, 8], "completion_tokens": [1, 1, None, 2], "cost": [9.0, 11.0, None, 12.0]}
    told = estimate_of(job, rows_of(columns, read=8), 4000)
    assert told.tokens is not None
    assert told.cost is not None
    assert told.tokens.seconds == pytest.approx(28 / 8 * 4000)
    assert told.cost.low < 32 / 8 * 4000 < told.cost.high
    assert told.cost.seconds == pytest.approx(32 / 8 * 4000)


def test_one_row_gives_a_wide_interval_and_rows_that_are_equal_a_narrow_one(tmp_path: Path) -> None:
    job = job_of(tmp_path, asking(**PRICES))
    one = estimate_of(job, rows_of({"cost": [2.0]}, 1), 10).cost
    equal = estimate_of(job, rows_of({"cost": [2.0] * 8}, 8), 10).cost
    assert one is not None
    assert equal is not None
    assert one.seconds == 20
    assert one.high > 40
    assert (equal.low, equal.high) == (20, 20)


def test_the_time_of_an_endpoint_is_that_of_its_concurrent_requests_or_of_its_limit(tmp_path: Path) -> None:
    rows = rows_of(
        {"cost": [1.0] * 8}, 8, **{"inference.0 openai": 2.0, "inference.0 openai: load": 3.0, "ingest": 1.0}
    )
    quick = estimate_of(job_of(tmp_path, asking(max_concurrent_requests=40, workers=2)), rows, 8000).time
    limited = estimate_of(job_of(tmp_path, asking(requests_per_minute=600)), rows, 8000).time
    assert quick is not None
    assert limited is not None
    assert quick.seconds == pytest.approx(9 + 8000 * 2 / 80)
    assert limited.seconds == pytest.approx(9 + 800)


def test_devices_cost_their_time(tmp_path: Path) -> None:
    model = {"kind": "text_embedding", "model": "x/y", "text_column": "text", "num_gpus": 1, "workers": 3}
    job = job_of(tmp_path, model, price_per_gpu_hour=3.6)
    told = estimate_of(job, rows_of({"a": [1]}, 1, **{"inference.0 text_embedding": 9.0}), 1000)
    assert told.cost is not None
    assert told.time is not None
    assert told.time.seconds == pytest.approx(3005)
    assert told.cost.seconds == pytest.approx(3005 / 3600 * 3 * 3.6)
    assert told.cost.high / told.cost.seconds == pytest.approx(told.time.high / told.time.seconds)


def test_the_overrun_is_what_all_workers_have_under_way(tmp_path: Path) -> None:
    first, second = asking(name="a", workers=2, **PRICES), asking(name="b", max_concurrent_requests=4, **PRICES)
    job = job_of(tmp_path, first, second, budget={"cost": 100})
    assert "at most 68 requests are under way, so the budget is exceeded by less than 340 tokens, cost 680" in overrun(
        job
    )
    rows = rows_of({"a_prompt_tokens": [3, 10], "b_prompt_tokens": [1, None]}, 2)
    assert f"less than {64 * 15 + 4 * 6:,} tokens, cost {64 * 20 + 4 * 11:,}" in overrun(job, rows)
    assert overrun(job_of(tmp_path, asking(), budget={"minutes": 3})) == ""
    by_row = job_of(tmp_path, asking(by_row={"max_new_tokens": "limit"}), budget={"tokens": 100})
    assert overrun(by_row).endswith(", and by longer answers of rows with a larger limit")


def test_the_overrun_of_embeddings_counts_each_text_of_a_request(tmp_path: Path) -> None:
    settings = {"model": "m", "text_column": "text", "inputs_per_request": 128, "max_concurrent_requests": 2}
    job = job_of(tmp_path, {"kind": "endpoint_embedding", **settings}, budget={"tokens": 1000})
    assert f"less than {2 * 128 * 10:,} tokens" in overrun(job, rows_of({"prompt_tokens": [3, 10]}, 2))


def test_the_rows_are_those_of_the_listing(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in/a.parquet", text=[f"t{number}" for number in range(500)])
    with chat_server() as server:
        job = job_of(tmp_path, asking(server.url, **PRICES))
        told = estimate(job, preview(job, 4))
        assert len(server.answered) == 4
    assert told.cost is not None
    assert (told.rows, told.sampled, told.cost.seconds) == (500, 4, pytest.approx(500 * 9))
    first, tokens, cost, time = told.lines()
    assert first == "estimate for all 500 rows, from 4 rows that ran"
    assert tokens == "  tokens: about 4,000 (80 %: 4,000 to 4,000)"
    assert cost == "  cost: about 4,500 (80 %: 4,500 to 4,500)"
    assert time.startswith("  time: about ")


def test_the_rows_of_a_request_share_its_time_and_its_limit(tmp_path: Path) -> None:
    model = {"kind": "endpoint_embedding", "model": "small", "text_column": "text", "inputs_per_request": 50}
    model |= {"base_url": "http://127.0.0.1:9/v1", "max_concurrent_requests": 4, "price_per_million_input_tokens": 1e6}
    rows = rows_of({"prompt_tokens": [5, 7]}, 2, **{"inference.0 endpoint_embedding": 2.0})
    quick = estimate_of(job_of(tmp_path, model), rows, 8000).time
    limited = estimate_of(job_of(tmp_path, model | {"requests_per_minute": 60}), rows, 8000).time
    assert quick is not None
    assert limited is not None
    assert (quick.seconds, limited.seconds) == (pytest.approx(5 + 80), pytest.approx(5 + 160))
    limit = job_of(tmp_path, model, budget={"tokens": 100})
    assert f"at most 4 requests are under way, so the budget is exceeded by less than {4 * 50 * 7:,}" in overrun(
        limit, rows
    )


def test_a_batch_has_its_own_price_and_no_time_that_a_preview_could_show(tmp_path: Path) -> None:
    job = job_of(tmp_path, asking(name="a", batch={}, **PRICES), asking(name="b", **PRICES))
    told = estimate_of(job, rows_of({"a_cost": [4.0, 4.0], "b_cost": [3.0, 3.0]}, 2, ingest=1.0), 100)
    assert told.cost is not None
    assert (told.cost.seconds, told.time) == (500, None)
    assert list(told.lines())[-1] == "  time: that of the provider's batches"


def test_a_cost_in_the_data_is_none_of_the_run(tmp_path: Path) -> None:
    data = {"cost": [70.0], "unit_cost": [7.0], "prompt_tokens": [5]}
    told = estimate_of(
        job_of(tmp_path, {"kind": "text_embedding", "model": "x/y", "text_column": "text"}),
        rows_of(data, 1, ingest=1.0),
        1000,
    )
    assert (told.tokens, told.cost) == (None, None)


def test_a_limit_of_tokens_is_that_of_one_model(tmp_path: Path) -> None:
    job = job_of(tmp_path, asking(name="a", tokens_per_minute=600), asking(name="b", user="{a_generated_text}"))
    rows = rows_of(
        {"a_prompt_tokens": [6], "b_prompt_tokens": [500]}, 1, **{"inference.0 a": 0.1, "inference.1 b": 0.1}
    )
    time = estimate_of(job, rows, 1000).time
    assert time is not None
    assert time.seconds == pytest.approx(5 + 600)
