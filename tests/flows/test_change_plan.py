"""The plan of a change beside what is published: which partitions run, by what, and what a budget leaves."""

import json
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from overnight.flows.backfill_plan import Request, Step, left_out, nothing_to_do, planned
from overnight.flows.change_plan import ChangePlan, plan_change
from overnight.flows.job.loading import JobFile, load_job
from overnight.flows.runs.attempt import Scope, opened
from overnight.flows.runs.run import describe_run
from overnight.flows.schedule.partitions import newest_due
from overnight.tasks.errors import JobError
from overnight.tasks.state.run import write_json
from tests import jobs
from tests.flows.ledger.published import publish

DAYS = ["2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04"]
MODEL, OTHER = "plan_test_model", "plan_test_other"  # modules in the working directory
SELECT = ("missing", "failed", "stale", "quarantined")
PRICES = {"price_per_million_input_tokens": 1.0, "price_per_million_output_tokens": 1.0}
CHAT = {"kind": "openai", "model": "small", "user": "{id}", "base_url": "http://127.0.0.1:9/v1", **PRICES}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job of four days with a model of Python."""
    monkeypatch.chdir(tmp_path)
    for module in (MODEL, OTHER):
        Path(f"{module}.py").write_text("class Twice:\n    def __call__(self, batch):\n        return batch\n")
    jobs.write_days(tmp_path, DAYS, rows=10)
    write(tmp_path, {"kind": "python", "target": f"{MODEL}:Twice", "kwargs": {"add": 1}})
    return tmp_path


def write(folder: Path, *inference: dict[str, Any], **sections: Any) -> None:
    jobs.write_job(folder / "job.yaml", name="tiny", inference=list(inference), **sections)


def publish_all(folder: Path, **changes: Any) -> None:
    for day in DAYS:
        publish(load_job(folder / "job.yaml"), day, **changes)


def plan(folder: Path, *settings: str, **changes: Any) -> ChangePlan:
    options: dict[str, Any] = {"select": SELECT, "order": "newest", "settings": settings, "end": date(2026, 3, 4)}
    return plan_change(JobFile(folder / "job.yaml"), Request("new", **({"start": None} | options | changes)))


def causes(found: ChangePlan) -> dict[str, list[str]]:
    return {change.step.partition: change.causes for change in found.changes}


def test_each_partition_has_what_makes_it_run_the_newest_first(folder: Path) -> None:
    job = load_job(folder / "job.yaml")
    publish(job, DAYS[0])
    publish(job, DAYS[1], rows_quarantined=3)
    shutil.copy(f"in/{DAYS[0]}/a.jsonl", f"in/{DAYS[0]}/b.jsonl")
    failure = {"job": "tiny", "stage": "infer", "error_message": "x", "failed_at": "2026-03-03T00:00:00Z"}
    write_json(describe_run(job, DAYS[2]).ledger / "failure.json", failure | {"attempt": "a"})
    found = plan(folder)
    assert list(causes(found).items()) == [
        (DAYS[3], ["never published"]),
        (DAYS[2], ["failed"]),
        (DAYS[1], ["quarantine"]),
        (DAYS[0], ["inputs"]),
    ]
    assert (found.request.start, found.unchanged) == (date(2026, 3, 1), 0)
    assert [change.step.rows for change in found.changes[2:]] == [3, 10]

    publish(job, DAYS[1])
    found = plan(folder, end=date(2026, 3, 2))
    assert (causes(found), found.unchanged) == ({DAYS[0]: ["inputs"]}, 1)
    assert found.lines()[0].endswith("; 1 published, which stay")


@pytest.mark.parametrize(
    ("settings", "cause", "sentence"),
    [
        (["inference.0.kwargs.add=2"], ["settings"], "settings changed: inference.python.kwargs.add: 1 -> 2"),
        ([f"inference.0.target={OTHER}:Twice"], ["settings", "code"], f"target: {MODEL}:Twice -> {OTHER}:Twice"),
        (["inference=[]"], ["model"], "settings changed: inference: python -> none"),
        (["shuffle.kind=files"], ["settings"], "settings changed: shuffle.kind: none -> files"),
    ],
)
def test_settings_of_the_command_line_make_published_partitions_stale_with_the_reason(
    folder: Path, settings: list[str], cause: list[str], sentence: str
) -> None:
    publish_all(folder)
    assert plan(folder).changes == []
    found = plan(folder, *settings)
    assert causes(found) == dict.fromkeys(DAYS, cause)
    assert sentence in found.changes[0].step.why[0]


def test_another_model_is_a_cause_of_its_own_and_so_is_changed_code(folder: Path) -> None:
    publish_all(folder)
    Path(f"{MODEL}.py").write_text("class Twice: ...\n")
    assert causes(plan(folder)) == {day: ["code"] for day in DAYS}
    write(folder, CHAT)
    publish_all(folder)
    found = plan(folder, "inference.0.model=large")
    assert causes(found)[DAYS[0]] == ["model"]
    assert found.changes[0].line == "model: inference.openai.model: small -> large, all rows run"


def test_what_does_not_fit_into_the_budget_is_left_from_the_oldest_end_and_the_totals_are_of_what_runs(
    folder: Path,
) -> None:
    write(folder, CHAT)
    columns = {"prompt_tokens": {"sum": 5}, "cost": {"sum": 10.0}, "shipping_cost": {"sum": 5000.0}}
    publish_all(folder, columns=columns, seconds=120.0)
    change = "inference.0.user=again {id}"
    found = plan(folder, change, budget=("cost=25",))
    assert [step.partition for step in found.steps] == [DAYS[3], DAYS[2]]
    refusal = f"budget.cost: 5 of 25 is left, and {DAYS[1]} needs about 10"
    assert [(item.step.partition, item.refusal) for item in found.left] == [(DAYS[1], refusal), (DAYS[0], refusal)]
    assert found.lines()[1] == f"left for the next time: {DAYS[1]}, {DAYS[0]}. {refusal}"
    shown = json.loads(json.dumps(found.as_json(), default=lambda item: item.as_json()))
    assert (shown["total"]["partitions"], shown["total"]["estimated_cost"]) == (2, 20.0)
    assert [item["left"] for item in shown["partitions"]] == [None, None, refusal, refusal]
    assert shown["partitions"][0]["causes"] == ["settings"]
    assert len(plan(folder, change, budget=("minutes=2.5", "cost=100")).steps) == 1
    assert len(plan(folder, change, budget=("minutes=9", "tokens=10")).left) == 0


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("money=3", "budget: expected cost=40, tokens=2e9 or minutes=300, found 'money=3'"),
        *((f"cost={value}", "budget: expected cost=40, tokens") for value in ("", "null", "~")),
        ("cost=3", "expected a model at an endpoint"),
        ("minutes=-3", "budget.minutes: expected"),
    ],
)
def test_a_budget_that_the_job_could_not_have_is_refused(folder: Path, budget: str, words: str) -> None:
    with pytest.raises(JobError, match=words):
        plan(folder, budget=(budget,))


def test_a_newer_publish_of_a_job_that_it_follows_and_an_abandoned_run_are_causes(folder: Path) -> None:
    sink = {"kind": "parquet", "path": f"{folder}/orders"}
    first = load_job(jobs.write_job(folder / "orders.yaml", name="orders", sink=sink))
    publish(first, DAYS[0])
    write(folder, run_after={"job": str(folder / "orders.yaml")})
    job = load_job(folder / "job.yaml")
    publish(job, DAYS[0], after={"orders": {DAYS[0]: "an earlier one"}})
    with pytest.raises(KeyboardInterrupt), opened(job, Scope(describe_run(job, DAYS[0])), force=True):
        raise KeyboardInterrupt
    assert causes(plan(folder, end=date(2026, 3, 1))) == {DAYS[0]: ["abandoned", "upstream"]}


def test_a_job_without_days_has_a_plan_too(folder: Path) -> None:
    write(folder, CHAT, source={"kind": "jsonl", "path": f"{folder}/in/{DAYS[0]}"})
    publish(load_job(folder / "job.yaml"), "all")
    options: dict[str, Any] = {"end": None}
    assert plan(folder, **options).changes == []
    assert causes(plan(folder, "inference.0.model=large", **options)) == {"all": ["model"]}


def test_a_plan_from_within_a_month_has_a_range_that_a_backfill_takes(folder: Path) -> None:
    write(folder, source={"kind": "jsonl", "path": f"{folder}/in/{{month}}"}, partitions={"every": "month"})
    month = newest_due(load_job(folder / "job.yaml"), datetime.now(UTC))
    assert month
    start = month + timedelta(20)
    found = plan(folder, start=start, end=None)
    assert (found.request.start, found.request.end) == (start, start)
    steps = planned(JobFile(folder / "job.yaml"), "new", found.request.start, found.request.end)[2]
    assert [step.partition for step in steps] == [step.partition for step in found.steps] == [f"{month:%Y-%m}"]


def test_quarantined_rows_of_an_undo_are_no_reason_to_run(folder: Path) -> None:
    job = load_job(folder / "job.yaml")
    receipt = publish(job, DAYS[0])
    record = {name: receipt[name] for name in ("generation", "fingerprint", "inputs", "commits")}
    undo = {"generation": "g", "by": "ada@laptop", "undone": record}
    publish(job, DAYS[0], reason="", undo=undo, rows_quarantined=2)
    assert causes(plan(folder, end=date(2026, 3, 1))) == {DAYS[0]: ["quarantine"]}, "rows of the settings of now"
    publish(job, DAYS[0], reason="", undo=undo, rows_quarantined=2, fingerprint="other")
    found = plan(folder, end=date(2026, 3, 1))
    assert (found.changes, found.unchanged) == ([], 1)


def test_a_region_that_the_job_no_longer_has_stays(folder: Path) -> None:
    jobs.write_days(folder, [f"{region}/{DAYS[0]}" for region in ("eu", "us")])
    source = {"kind": "jsonl", "path": f"{folder}/in/{{region}}/{{date}}"}
    for regions in (["eu", "us"], ["eu"]):
        write(folder, source=source, partitions={"date": "day", "region": regions, "start": DAYS[0]})
        if "us" in regions:
            for region in regions:
                publish(load_job(folder / "job.yaml"), f"{DAYS[0]},{region}")
    found = plan(folder, "shuffle.kind=files", end=date(2026, 3, 1))
    assert (list(causes(found)), list(found.stuck)) == ([f"{DAYS[0]},eu"], [f"{DAYS[0]},us"])
    reason = f"partition: expected one of eu, found us in {DAYS[0]},us."
    assert found.lines()[1] == f"cannot run, so it stays: {DAYS[0]},us. {reason}"
    steps = steps_of_backfill(folder, "shuffle.kind=files")
    assert [step.partition for step in steps] == [f"{DAYS[0]},eu"]
    job = JobFile(folder / "job.yaml").job(["shuffle.kind=files"])
    request = Request("new", date(2026, 3, 1), date(2026, 3, 1), ("stale",))
    assert left_out(job, request, steps) == f"cannot run, so it stays: {DAYS[0]},us. {reason}"


def test_a_day_whose_inputs_are_gone_stays(folder: Path) -> None:
    publish_all(folder)
    shutil.rmtree(folder / "in" / DAYS[0])
    found = plan(folder)
    assert (found.changes, list(found.stuck)) == ([], [DAYS[0]])
    assert found.lines()[1].startswith(f"cannot run, so it stays: {DAYS[0]}. inputs: source.path: expected")
    assert steps_of_backfill(folder) == []
    assert steps_of_backfill(folder, "shuffle.kind=files") == [], "its settings have changed as well"
    job, request = load_job(folder / "job.yaml"), Request("new", date(2026, 3, 1), date(2026, 3, 1), ("stale",))
    assert f"; cannot run, so it stays: {DAYS[0]}. inputs: source.path: expected" in nothing_to_do(job, request)


def steps_of_backfill(folder: Path, *settings: str) -> list[Step]:
    day = date(2026, 3, 1)
    return planned(JobFile(folder / "job.yaml"), "new", day, day, ("stale",), settings=settings)[2]
