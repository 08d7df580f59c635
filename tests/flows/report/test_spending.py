"""Tokens, costs and hours of a run, and their price from the job or the environment."""

from types import SimpleNamespace

import pytest

from overnight.flows.report.spending import Use, spent_in, spent_text, total_of, uses_of
from overnight.tasks.errors import JobError

RECEIPT = {
    "columns": {"gpt_prompt_tokens": {"sum": 1200}, "gpt_cost": {"sum": 0.5}, "other": {"sum": 3}},
    "performance": {"device_seconds": 7200.0},
    "stages": {"ingest": {"seconds": 3600.0}, "infer": {"seconds": 7200.0}},
}


def test_a_run_used_tokens_devices_and_cpus() -> None:
    uses = uses_of(SimpleNamespace(price_per_gpu_hour=2.0, price_per_cpu_hour=0.1), RECEIPT)
    assert uses == [
        Use("prompt tokens (gpt_prompt_tokens)", 1200, "tokens"),
        Use("cost of answers (gpt_cost)", 0.5, "", 0.5),
        Use("models on devices", 2.0, "hours", 4.0),
        Use("workers on CPUs", 1.0, "hours", 0.1),
    ]
    assert total_of(uses) == pytest.approx(4.6)


def test_without_prices_there_is_no_total() -> None:
    assert total_of(uses_of(SimpleNamespace(), {"stages": RECEIPT["stages"]})) is None


def test_prices_of_the_job_come_before_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVERNIGHT_PRICE_PER_GPU_HOUR", "3")
    monkeypatch.setenv("OVERNIGHT_PRICE_PER_CPU_HOUR", "0.2")
    *_, devices, cpus = uses_of(SimpleNamespace(price_per_gpu_hour=2.5), RECEIPT)
    assert (devices.price, cpus.price) == (5.0, pytest.approx(0.2))
    monkeypatch.setenv("OVERNIGHT_PRICE_PER_CPU_HOUR", "cheap")
    with pytest.raises(JobError, match="expected a number, found 'cheap'"):
        uses_of(SimpleNamespace(), RECEIPT)


def test_what_was_spent_is_that_of_all_answers_or_the_sums_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVERNIGHT_PRICE_PER_CPU_HOUR", "cheap")  # of no use here, and no reason to fail
    assert spent_in(RECEIPT) == {"tokens": 1200, "cost": 0.5}
    spent = RECEIPT | {"spent": {"answers": 9, "tokens": 1500, "cost": 0.625}}
    assert spent_text(spent) == "1,500 tokens, cost 0.625"
    assert spent_text({"spent": {"answers": 9, "tokens": 1500, "cost": None}}) == "1,500 tokens"
    assert spent_text({"columns": {"shipping_cost": {"sum": 70.0}, "cost": {"sum": 3.0}}}) == "", "data of the source"


@pytest.mark.parametrize(("cost", "text"), [(0.0042, "0.0042"), (98.434, "98.43"), (12_345.6, "12,346")])
def test_a_cost_is_a_plain_number(cost: float, text: str) -> None:
    assert spent_text({"spent": {"answers": 3, "tokens": 1500, "cost": cost}}) == f"1,500 tokens, cost {text}"
