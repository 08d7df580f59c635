"""What is remembered of a model's rows is known before a run, by the model's key alone."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overnight.flows.job.model import Job
from overnight.flows.job.pipeline import memory_of
from overnight.flows.ledger.remembered import remembered_rows
from overnight.flows.runs.run import describe_run
from overnight.tasks.reuse.kept_files import keep_files
from tests import jobs

CHAT = {"kind": "openai", "model": "m", "user": "{id}", "base_url": "http://127.0.0.1:9/v1"}


def job_of(folder: Path, **sections: Any) -> Job:
    models = [{**CHAT, "name": "fixed"}, {**CHAT, "name": "drawn", "temperature": 0.7}]
    return jobs.load(folder, **{"inference": models, "memory": {"path": f"{folder}/memory"}, **sections})


def remember(job: Job, age_days: float, *counts: int) -> None:
    """Write files with these numbers of keys, as runs of the job's first model leave them."""
    pinned = job.pinned(describe_run(job, "all"))
    memory = memory_of(pinned, pinned.models[0])
    assert memory
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(time.time() - age_days * 86400))
    for number, count in enumerate(counts):
        keep_files(memory.folder, f"{moment}-{number}", ".rows", [(np.arange(count, dtype=np.uint64), b"rows")])


def test_each_model_has_its_rows_or_the_reason_for_none(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    why = (
        "memory of drawn: not remembered, because its answers are drawn at random; remember: true keeps the first ones"
    )
    assert list(map(str, remembered_rows(job))) == ["memory of fixed: new key: no row remembered", why]
    remember(job, 1, 12_000, 400, 0)
    remember(job, 91, 7)
    assert str(remembered_rows(job)[0]) == "memory of fixed: 12,400 rows remembered under this model's key"
    assert remembered_rows(job)[0].as_json() == {"model": "fixed", "rows_remembered": 12_400, "reason": None}


def test_another_setting_of_a_model_is_a_new_key_and_a_job_without_memory_has_none(tmp_path: Path) -> None:
    remember(job_of(tmp_path), 1, 5)
    other = job_of(tmp_path, inference=[{**CHAT, "user": "again {id}"}])
    assert [entry.rows for entry in remembered_rows(other)] == [0]
    assert remembered_rows(job_of(tmp_path, memory=None)) == []


def test_a_memory_that_cannot_be_listed_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> int:
        raise PermissionError("not yours")

    monkeypatch.setattr("overnight.flows.ledger.remembered.count_keys", refuse)
    assert "unknown, because its files cannot be listed: not yours" in str(remembered_rows(job_of(tmp_path))[0])
