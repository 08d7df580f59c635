"""`overnight plan` as it is typed: what it prints, what --apply runs, and what a budget leaves."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from overnight.flows.job.loading import load_job
from overnight.flows.ledger.partition_status import read_ledger
from tests import jobs
from tests.flows.conftest import Overnight, overnight  # noqa: F401 - a fixture
from tests.flows.ledger.published import publish
from tests.overnight.cli.results_on_disk import typed
from tests.tasks.infer.chat_server import chat_server

DAYS = ["2026-03-01", "2026-03-02", "2026-03-03"]
RANGE = ("--start", DAYS[0], "--end", DAYS[2])
PRICES = {"price_per_million_input_tokens": 1_000_000.0, "price_per_million_output_tokens": 2_000_000.0}
ROWS, COST = 10, 9.0  # of a day; of an answer: 7 tokens in, and one out


def write(folder: Path, url: str = "http://127.0.0.1:9/v1", **sections: Any) -> None:
    """Write a job of three days, each of ten rows with texts of their own."""
    for day in DAYS:
        (folder / "in" / day).mkdir(parents=True)
        lines = [json.dumps({"text": f"{day}-{number}"}) for number in range(ROWS)]
        (folder / "in" / day / "a.jsonl").write_text("\n".join(lines))
    model = {"kind": "openai", "model": "small", "user": "{text}", "base_url": url, "max_concurrent_requests": 1}
    model |= {"max_new_tokens": 1}
    jobs.write_job(folder / "job.yaml", name="tiny", inference=[model | PRICES], **sections)


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def test_a_plan_prints_a_line_for_each_partition_the_totals_and_what_is_remembered(tmp_path: Path) -> None:
    write(tmp_path, memory={"path": f"{tmp_path}/memory"})
    for day in DAYS[:2]:
        publish(load_job(tmp_path / "job.yaml"), day, columns={"prompt_tokens": {"sum": 5}, "cost": {"sum": 10.0}})
    code, out, _ = typed("plan", tmp_path, *RANGE, "--set", "inference.0.model=large", "--budget", "cost=15")
    assert code == 0
    table, lines = out.split("tiny: would run ")
    assert [line.split()[0] for line in table.splitlines()[1:] if line.startswith("2026")] == [
        DAYS[2],
        DAYS[1],
        DAYS[0],
    ]
    assert "never run" in table
    assert "model: " in table
    assert lines.splitlines()[0].startswith("1 partition, about 10 rows and ")
    assert lines.splitlines()[1:] == [
        f"left for the next time: {DAYS[1]}, {DAYS[0]}. budget.cost: 5 of 15 is left, and {DAYS[1]} needs about 10",
        "memory of openai: new key: no row remembered",
    ]
    shown = json.loads(typed("plan", tmp_path, *RANGE, "--json")[1])
    assert ([item["partition"] for item in shown["partitions"]], shown["unchanged"]) == ([DAYS[2]], 2)
    assert shown["memory"] == [{"model": "openai", "rows_remembered": 0, "reason": None}]
    assert "memory of openai: new key" in typed("status", tmp_path, *RANGE, "--plan")[1]
    assert "memory of openai: new key" in typed("backfill", tmp_path, *RANGE, "--dry-run")[2]


@pytest.mark.parametrize("arguments", [("--budget", "money=3"), ("--start", "2026-02-30"), ("--select", "all")])
def test_bad_usage_exits_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    write(tmp_path)
    assert typed("plan", tmp_path, *arguments)[0] == 2


@pytest.mark.slow
def test_apply_runs_the_newest_first_spends_no_more_than_its_budget_and_leaves_the_others(
    tmp_path: Path,
    overnight: Overnight,  # noqa: F811
) -> None:
    def statuses() -> list[str]:
        return [entry.status for entry in read_ledger(load_job(tmp_path / "job.yaml"), only=DAYS)]

    with chat_server() as server:
        write(tmp_path, server.url)
        apply = ("plan", "job.yaml", *RANGE, "--apply")
        first = overnight(*apply, "--budget", "cost=50")
        assert first.returncode == 1, first.stderr
        assert statuses() == ["missing", "missing", "failed"]
        spent = len(server.answered) * COST
        assert 0 < spent <= 50 + COST
        left = f"left for the next time: {DAYS[1]}, {DAYS[0]}. budget.cost: expected at most 50"
        assert left in unwrapped(first.stderr)

        second = overnight(*apply, "--budget", "cost=200")
        assert second.returncode == 0, second.stderr
        assert statuses() == ["missing", "published", "published"]
        needs = f"budget.cost: {200 - 2 * ROWS * COST + spent:g} of 200 is left, and {DAYS[0]} needs about 90"
        assert f"left for the next time: {DAYS[0]}. {needs}" in unwrapped(second.stderr)
        asked = Counter(text for _, text in server.seen)
        assert asked == dict.fromkeys([f"{day}-{number}" for day in DAYS[1:] for number in range(ROWS)], 1)

        change = ("--set", "inference.0.user=again-{text}", "--json")
        third = overnight(*apply, *change, "--budget", "cost=100")
        assert third.returncode == 0, third.stderr
        shown = json.loads(third.stdout)
        assert [item["causes"] for item in shown["partitions"]] == [["settings"], ["settings"], ["never published"]]
        assert [item["left"] is None for item in shown["partitions"]] == [True, False, False]
        assert [item["status"] for item in shown["outcomes"]] == ["published"]
        assert len(server.answered) == 3 * ROWS
    [record] = [path for path in (tmp_path / "out/_overnight/backfills").glob("*.json") if "again" in path.read_text()]
    assert json.loads(record.read_text())["spent"] == {"cost": ROWS * COST, "tokens": ROWS * 8}
