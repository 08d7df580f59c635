"""Every sink from a job file, end to end: published, found again by its own library, and left alone the second time."""

import os
from datetime import date
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest
import sqlalchemy as sa
from pydantic import ValidationError

from overnight.flows.job.model import Job
from overnight.flows.ledger.garbage_collection import collect_garbage
from overnight.flows.ledger.partition_status import read_ledger
from overnight.tasks.storage.location import Location
from tests.conftest import WORKER_PATH
from tests.contracts.sinks.publications import read_files
from tests.flows.conftest import RunJob, assert_settled

MODEL = """
import numpy as np


class Mean:
    def __call__(self, batch):
        means = np.array([image.mean() for image in batch["image"]])
        return {"mean": means, "vector": np.stack([means, means], 1).astype(np.float32)}
"""
MEANS = {f"{'cat' if i % 2 else 'dog'}/{i:02d}.png": i * 20.0 for i in range(12)}


@pytest.fixture(autouse=True, scope="module")
def _model() -> None:
    (WORKER_PATH / "sink_test_models.py").write_text(MODEL)


def job(pictures: Path, sink: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "pictures",
        "source": {"kind": "images", "path": str(pictures.parent / "date={partition}"), "label_from": "parent"},
        "inference": [{"kind": "python", "target": "sink_test_models:Mean"}],
        "sink": sink,
    }


@pytest.mark.slow
def test_json_lines_that_a_check_has_seen_as_typed_rows(run_job: RunJob, pictures: Path, tmp_path: Path) -> None:
    (WORKER_PATH / "sink_test_checks.py").write_text(
        "def vectors(receipt, previous, rows):\n"
        "    found = rows.to_table()['vector'].type\n"
        "    return None if str(found).startswith('fixed_size_list') else f'vector is {found}'\n"
    )
    made = job(pictures, {"kind": "jsonl", "path": str(tmp_path / "out"), "compression": "zstd"})
    made["checks"] = {"python": "sink_test_checks:vectors"}
    receipt = run_job(made, "2026-01-02")
    assert_settled(receipt)
    found = read_files(Location(str(tmp_path / "out")), receipt["files"]).to_pylist()
    assert {row["row_id"]: row["mean"] for row in found} == MEANS
    assert all(np.allclose(row["vector"], row["mean"]) for row in found)
    assert run_job(made, "2026-01-02") == receipt
    parts = tmp_path / "out/_overnight/date=2026-01-02/generations" / receipt["generation"] / "parts"
    assert not parts.exists()


@pytest.mark.slow
def test_rows_of_a_database_with_status_clean_and_a_sample(run_job: RunJob, pictures: Path, tmp_path: Path) -> None:
    database, state = f"sqlite:///{tmp_path}/results.db", tmp_path / "state"
    made = job(pictures, {"kind": "sql", "url": database, "table": "pictures"}) | {"state": str(state)}
    sample = run_job(made, "2026-01-02", limit_rows=3)
    assert sample["rows_out"] == 3
    assert len(read_files(Location(f"{state}/samples/published"), sample["files"])) == 3
    assert not (tmp_path / "results.db").exists() or not sa.inspect(sa.create_engine(database)).has_table("pictures")
    receipt = run_job(made, "2026-01-02")
    assert_settled(receipt)
    assert receipt["files"] == []
    with sa.create_engine(database).connect() as connection:
        assert dict(tuple(row) for row in connection.execute(sa.text("SELECT row_id, mean FROM pictures"))) == MEANS
    assert run_job(made, "2026-01-02") == receipt
    model = Job.model_validate(made)
    entries = read_ledger(model, date(2026, 1, 2), date(2026, 1, 2), inputs=True)
    assert [(entry.partition, entry.status) for entry in entries] == [("2026-01-02", "published")]
    cleaned = collect_garbage(model, keep_receipts=0, dry_run=False)
    assert {item["what"] for item in cleaned["removed"]} >= {"samples"}
    assert run_job(made, "2026-01-02") == receipt
    assert not (state / "published").exists()


@pytest.mark.slow
def test_rows_of_postgresql_go_to_postgresql_once(run_job: RunJob, postgres: str, tmp_path: Path) -> None:
    """Its workers, who were there before the server, have the password from a file."""
    server = sa.make_url(postgres + "postgres").set(username=os.environ["PGUSER"], password=os.environ["PGPASSWORD"])
    passwords = tmp_path / "pgpass"
    passwords.write_text(f"*:*:*:*:{os.environ['PGPASSWORD'].replace(':', chr(92) + ':')}")
    passwords.chmod(0o600)
    with sa.create_engine(server).begin() as connection:
        connection.execute(
            sa.text("CREATE TABLE reviews AS SELECT n AS id, n % 5 AS stars FROM generate_series(1, 300) n")
        )
    url = f"postgresql+psycopg://{server.username}@{server.host}:{server.port}/postgres?passfile={passwords}"
    made: dict[str, Any] = {
        "name": "reviews",
        "source": {
            "kind": "sql", "url": url, "query": "SELECT * FROM reviews", "key": "id", "rows_per_unit": 50,
        },
        "preprocess": [{"kind": "derive_columns", "columns": {"good": "stars > 2"}}],
        "sink": {"kind": "sql", "table": "judged", "url": url},
        "state": str(tmp_path / "state"),
    }  # fmt: skip
    receipt = run_job(made)
    assert_settled(receipt, written=300)
    wanted = {str(n): n % 5 > 2 for n in range(1, 301)}
    for again in (False, True):
        assert run_job(made, force=True)["generation"] != receipt["generation"] if again else run_job(made) == receipt
        with sa.create_engine(server).connect() as connection:
            found = [tuple(row) for row in connection.execute(sa.text("SELECT row_id, good FROM judged"))]
        assert len(found) == 300
        assert dict(found) == wanted


@pytest.mark.slow
def test_a_sample_of_a_database_has_the_heavy_columns_that_the_sink_keeps(
    run_job: RunJob, pictures: Path, tmp_path: Path
) -> None:
    sink = {"kind": "sql", "url": f"sqlite:///{tmp_path}/results.db", "table": "pictures", "keep_columns": ["image"]}
    made = job(pictures, sink) | {"state": str(tmp_path / "state"), "inference": []}
    sample = run_job(made, "2026-01-02", limit_rows=3)
    assert "image" in read_files(Location(f"{tmp_path}/state/samples/published"), sample["files"]).column_names


def test_a_sink_without_a_directory_needs_a_state(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"state: expected a directory, found none\. A sink of kind sql"):
        Job.model_validate(job(pictures, {"kind": "sql", "url": "sqlite:////tmp/x.db", "table": "pictures"}))


@pytest.mark.slow
def test_a_lance_table_and_a_sample_of_it(run_job: RunJob, pictures: Path, tmp_path: Path) -> None:
    made = job(pictures, {"kind": "lance", "path": str(tmp_path / "out"), "index": "vector"})
    assert run_job(made, "2026-01-02", limit_rows=3)["rows_out"] == 3
    receipt = run_job(made, "2026-01-02")
    assert_settled(receipt)
    found = lance.dataset(tmp_path / "out", version=receipt["table_version"]).to_table().to_pylist()
    assert {row["row_id"]: row["mean"] for row in found} == MEANS
    assert all(np.allclose(row["vector"], row["mean"]) for row in found)
    assert run_job(made, "2026-01-02") == receipt
