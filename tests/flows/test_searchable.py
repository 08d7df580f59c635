"""Which published partitions a search compares, from receipts and a Lance table that the tests write themselves."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from overnight.flows.job.model import Job
from overnight.flows.similarity_search import searchable
from overnight.tasks.search.knn import nearest
from overnight.tasks.state.run import write_json
from overnight.tasks.storage.location import Location
from tests import jobs

DAYS = ("2026-01-02", "2026-01-03", "2026-01-04")


def looking(folder: Path, kind: str) -> Job:
    (folder / "clip").mkdir()
    (folder / "clip/config.json").write_text("{}")
    inference = [{"kind": "image_embedding", "model": str(folder / "clip")}]
    source = {"kind": "images", "path": f"{folder}/in/date={{partition}}", "label_from": "parent"}
    return jobs.load(folder, source=source, inference=inference, sink={"kind": kind, "path": f"{folder}/out"})


def publish(folder: Path, job: Job, files: Mapping[str, Sequence[str]]) -> None:
    """Write the receipt of each day with its files."""
    models = [model.fingerprint() for model in job.models]
    settings = {"inference": [{"kind": "image_embedding"}]}
    ingredients = {"settings": settings, "models": models, "steps": [], "format_version": 1}
    for day, names in files.items():
        facts: dict[str, Any] = {"job": job.name, "partition": day, "generation": "g", "fingerprint": ""}
        facts |= {"files": names, "ingredients": ingredients, "table_version": 1}
        write_json(Location(f"{folder}/out/_overnight/date={day}/receipt.json"), facts)


def rows(day: str, count: int) -> pa.Table:
    vectors = pa.array([[1.0, float(number)] for number in range(count)], pa.list_(pa.float32(), 2))
    names = pa.array([f"{number}.png" for number in range(count)], pa.string())
    days = pa.array([date.fromisoformat(day)] * count, pa.date32())
    return pa.table({"row_id": names, "embedding": vectors, "date": days})


def test_a_day_without_rows_is_left_out_although_the_table_s_version_of_its_publish_is_removed(tmp_path: Path) -> None:
    job = looking(tmp_path, "lance")
    lance.write_dataset(rows(DAYS[0], 0), f"{tmp_path}/out")
    table = lance.write_dataset(rows(DAYS[1], 3), f"{tmp_path}/out", mode="append")
    table.cleanup_old_versions(older_than=timedelta(0))
    publish(tmp_path, job, {DAYS[0]: [], DAYS[1]: ["data/x.lance"]})
    model: Any = job.models[0]
    target = searchable(job, model, None)
    assert [partition.partition for partition in target.partitions] == [DAYS[1]]
    assert nearest(target.partitions, "embedding", np.array([1.0, 0.0]), 1).rows == 3


def test_a_day_of_another_kind_of_sink_is_skipped_with_the_reason(tmp_path: Path) -> None:
    job = looking(tmp_path, "lance")
    lance.write_dataset(rows(DAYS[1], 3), f"{tmp_path}/out")
    publish(tmp_path, job, {DAYS[0]: ["date=2026-01-02/x.parquet"], DAYS[1]: ["data/x.lance"]})
    model: Any = job.models[0]
    target = searchable(job, model, None)
    assert [partition.partition for partition in target.partitions] == [DAYS[1]]
    reason = "expected files of a sink of kind lance, found date=2026-01-02/x.parquet"
    assert target.skipped == [{"partition": DAYS[0], "why": reason}]


def test_the_files_of_the_model_are_read_once_for_all_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = looking(tmp_path, "parquet")
    publish(tmp_path, job, {day: [f"date={day}/x.parquet"] for day in DAYS})
    model: Any = job.models[0]
    readings: list[Any] = []
    fingerprint = type(model).fingerprint

    def read(own: Any) -> Any:
        readings.append(own)
        return fingerprint(own)

    monkeypatch.setattr(type(model), "fingerprint", read)
    assert len(searchable(job, model, DAYS[0]).partitions) == 1
    count_of_a_day = len(readings)
    assert len(searchable(job, model, None).partitions) == len(DAYS)
    assert len(readings) == 2 * count_of_a_day
