"""What a job knows of the partitions of the jobs that it follows."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import chain_status, read_ledger
from overnight.flows.ledger.upstreams import chain_of, changes_upstream, generations_followed, lacking
from overnight.flows.runs.run import describe_run
from overnight.tasks.state.run import write_json
from tests.jobs import write_job

FIRST, SECOND = "2026-03-01", "2026-03-02"


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def job(name: str, path: str = "in/{partition}", **sections: Any) -> Job:
    source, sink = {"kind": "jsonl", "path": path}, {"kind": "parquet", "path": f"out/{name}"}
    return load_job(write_job(Path(f"{name}.yaml"), **{"name": name, "source": source, "sink": sink, **sections}))


def publish(job: Job, partition: str, generation: str) -> None:
    receipt = {"job": job.name, "partition": partition, "generation": generation}
    write_json(job.ledger(partition) / "receipt.json", receipt)


def test_a_partition_follows_the_newest_publishes_of_the_partitions_that_it_needs() -> None:
    orders = job("orders")
    after = job("totals", run_after={"job": "orders.yaml", "partition": "last 2"})
    assert lacking(after, SECOND) == f"expected the partition {SECOND} of the job orders, found it not published"
    publish(orders, SECOND, "g2")
    assert lacking(after, SECOND) == ""  # the other job has no earlier day
    publish(orders, "2026-02-28", "g0")
    assert lacking(after, SECOND) == f"expected the partition {FIRST} of the job orders, found it not published"
    publish(orders, FIRST, "g1")
    assert lacking(after, SECOND) == ""
    followed = generations_followed(after, SECOND)
    assert followed == {"orders": {FIRST: "g1", SECOND: "g2"}}
    receipt = {"after": followed}
    assert changes_upstream(after, SECOND, receipt) == ()
    publish(orders, FIRST, "g3")
    assert changes_upstream(after, SECOND, receipt) == (f"follows orders, which was published again since: {FIRST}",)


def test_a_job_without_days_follows_any_publish_and_another_job_in_its_place_does_not_count() -> None:
    orders = job("orders")
    after = job("all-orders", "in", run_after={"job": "orders.yaml", "partition": "all"})
    assert lacking(after, "all") == "expected a published partition of the job orders, found none"
    publish(orders.model_copy(update={"name": "stranger"}), FIRST, "g0")
    assert lacking(after, "all") != ""
    publish(orders, FIRST, "g1"), publish(orders, SECOND, "g2")
    receipt = {"after": generations_followed(after, "all")}
    assert receipt["after"] == {"orders": {"all published": "g2"}}
    publish(orders, FIRST, "g3")
    assert len(changes_upstream(after, "all", receipt)) == 1


def test_a_chain_names_each_job_once_the_first_to_run_first_with_the_days_that_are_needed() -> None:
    job("raw")
    job("orders", run_after={"job": "raw.yaml"})
    job("prices", run_after={"job": "raw.yaml", "partition": "last 3"})
    follows = [{"job": "orders.yaml"}, {"job": "prices.yaml", "partition": "last 2"}]
    totals = job("totals", run_after=follows)
    days = date.fromisoformat(FIRST), date.fromisoformat(SECOND)
    chain = [(needed.job_file.stem, str(needed.start), str(needed.end)) for needed in chain_of(totals, *days)]
    assert chain == [
        ("raw", "2026-02-26", SECOND),
        ("orders", FIRST, SECOND),
        ("prices", "2026-02-28", SECOND),
    ]


def test_the_status_of_a_job_counts_the_partitions_of_its_chain() -> None:
    orders = job("orders")
    after = job("totals", run_after={"job": "orders.yaml"})
    run = describe_run(orders, FIRST)
    receipt = {"job": "orders", "partition": FIRST, "generation": "g1", "fingerprint": run.fingerprint}
    write_json(run.ledger / "receipt.json", {**receipt, "ingredients": run.ingredients})
    entries = read_ledger(after, date.fromisoformat(FIRST), date.fromisoformat(SECOND))
    assert chain_status(after, entries) == {"orders": {"published": 1, "missing": 1}}
