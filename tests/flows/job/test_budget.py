"""The settings of `budget`: what they need, and that they change no result."""

from pathlib import Path
from typing import Any

import pytest

from overnight.flows.job.model import Job
from tests import jobs
from tests.flows.conftest import parquet

PRICES = {"price_per_million_input_tokens": 1, "price_per_million_output_tokens": 2}


def asking(**settings: Any) -> dict[str, Any]:
    return {"kind": "openai", "model": "small", "user": "{text}", **settings}


def job_of(folder: Path, *models: dict[str, Any], **sections: Any) -> Job:
    return jobs.load(folder, source=parquet(folder), inference=list(models), **sections)


def test_a_budget_needs_prices_and_an_endpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"budget\.cost: expected the prices of each model at an endpoint, found none"):
        job_of(tmp_path, asking(), budget={"cost": 1})
    with pytest.raises(ValueError, match="expected a model at an endpoint for cost and tokens, found none"):
        job_of(tmp_path, budget={"tokens": 1})
    with pytest.raises(ValueError, match=r"budget\.cost: kind: vllm has no price, so this limit is never reached"):
        job_of(tmp_path, asking(kind="vllm"), budget={"cost": 1})
    assert job_of(tmp_path, asking(kind="vllm"), budget={"tokens": 1})
    assert job_of(tmp_path, budget={"minutes": 1}).ingredients() == job_of(tmp_path).ingredients()
    priced = job_of(tmp_path, asking(**PRICES), budget={"cost": 1, "tokens": "2e9"})
    assert priced.ingredients() == job_of(tmp_path, asking()).ingredients()
