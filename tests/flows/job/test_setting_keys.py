"""Every key of the schema either changes the fingerprint of a job, or is named here as one that changes no output."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overnight.cli.reference.job_pages import SECTIONS, leaves_of
from overnight.flows.job.model import Job
from overnight.tasks.config.settings import Leaf
from overnight.tasks.ingest.kinds import JobRows
from tests.jobs import load

RESULTS = {"source", "shuffle", "preprocess", "inference", "sink"}
# A new key of a job belongs here only if the rows of a partition stay the same whatever its value is.
NO_OUTPUT = {
    *("name", "state", "storage", "memory", "partitions", "checks", "schedule", "run_after", "notify", "budget"),
    *("retries", "row_timeout_seconds", "stall_timeout_seconds", "busy_timeout_seconds", "cluster"),
    *("price_per_gpu_hour", "price_per_cpu_hour", "allow_settings"),
}
# The same of the settings of sources, steps, models and sinks: how much is run together or at a time, and where; what
# waits for what; and prices, which count from the next run on.
OPERATIONAL = {
    "source": {"allow_empty", "anonymous", "late", "on_changed", "timeout_seconds", "wait_for"},
    "shuffle": set(),
    "preprocess": {"remember"},
    "inference": {
        *("accelerator_type", "cpu_fallback", "device_map", "gpu_memory", "max_memory", "memory", "num_cpus"),
        *("num_gpus", "resources", "workers", "pipeline_parallel_size", "tensor_parallel_size", "python"),
        *("batch", "batch_size", "placement", "remember", "reuse", "encoding", "inputs_per_request"),
        *("api_key_env", "headers", "max_concurrent_requests", "max_tries", "requests_per_minute"),
        *("retry_timeout_seconds", "start_timeout_seconds", "timeout_seconds", "tokens_per_minute"),
        *("price_per_million_cached_tokens", "price_per_million_input_tokens", "price_per_million_output_tokens"),
    },
    "sink": {
        *("catalog", "catalog_name", "path", "url", "column", "compression", "format", "quality", "index", "metric"),
        *("grace_seconds", "keep_publications", "rows_per_part", "seconds_per_part", "target_file_size"),
    },
}
FORMS = {
    "output_schema": lambda value: {"title": str(value)},
    "target": lambda value: f"json:X{value}",
    "module": lambda value: f"json:X{value}",
}
VALUES = st.one_of(st.integers(2, 10**6), st.text(min_size=3), st.lists(st.text(min_size=1), min_size=1, max_size=3))
LEAVES = [(section, leaf) for section in SECTIONS for leaf in leaves_of(section) if leaf is not JobRows]


def test_each_key_of_a_job_is_of_its_results_or_named_as_one_that_changes_none() -> None:
    assert set(Job.model_fields) == RESULTS | NO_OUTPUT
    job = load(Path("/x"), inference=[{"kind": "python", "target": "json:JSONDecoder"}])
    assert {*job.result_settings()} == RESULTS


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(("section", "leaf"), LEAVES, ids=lambda one: getattr(one, "__name__", one))
@settings(max_examples=5, deadline=None)
@given(value=VALUES)
def test_each_setting_changes_the_fingerprint_or_is_named_as_one_that_changes_no_output(
    section: str, leaf: type[Leaf], value: Any
) -> None:
    fixed = {"target": "json:X", "kind": leaf.model_fields["kind"].default}
    before = leaf.model_construct(**fixed).content_settings()
    for name in {*leaf.model_fields} - {"kind"}:
        setting = FORMS[name](value) if name in FORMS else value
        after = leaf.model_construct(**fixed | {name: setting}).content_settings()
        assert (after == before) == (name in OPERATIONAL[section]), name


def test_the_list_of_settings_that_change_no_output_names_settings() -> None:
    for section, names in OPERATIONAL.items():
        known = {name for own, leaf in LEAVES if own == section for name in leaf.model_fields}
        assert names <= known, section
