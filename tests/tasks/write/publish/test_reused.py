"""What a publish reads from the logs of answers, and what it leaves to later runs, also if it dies half-way."""

import json
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.reuse.kept_answers import KeptAnswers
from overnight.tasks.reuse.settings import reuse_key
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location
from overnight.tasks.write.publish import publish as publishing
from overnight.tasks.write.publish.publish import publish, repair
from overnight.tasks.write.publish.reused import reused_answers
from overnight.tasks.write.sinks.parquet import ParquetSink
from tests.contracts.sinks.publications import NO_ERRORS, numbered, ready_to_publish, receipt_of, stage

AT = 4_000_000_000
KEYS = [reuse_key("D", "http://x", {"n": number}, None) for number in range(3)]


class Killed(BaseException):
    """The process ends here."""


def write_log(run: Run, name: str, *lines: dict[str, Any]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run.answers / name / "a.jsonl").write_bytes((text + '{"key": "cut o').encode())


def settings(folder: Path, *names: str) -> dict[str, Any]:
    reuse = {"path": str(folder / "answers"), "days": 30}
    return {
        "inference": [{"kind": "filter_rows"}, *({"kind": "openai", "name": name, "reuse": reuse} for name in names)]
    }


def test_each_reused_answer_is_counted_once_for_its_model(tmp_path: Path) -> None:
    run = numbered(tmp_path, 1)
    ten = {"key": "0" * 64, "answer": {"prompt_tokens": 10, "completion_tokens": 2}}
    write_log(run, "a.reused", ten, ten, {"key": "1" * 64, "answer": {"prompt_tokens": None, "completion_tokens": 3}})
    assert reused_answers(run, settings(tmp_path, "a", "b")) == {
        "a": {"answers": 2, "prompt_tokens": 10, "completion_tokens": 5},
        "b": {"answers": 0, "prompt_tokens": 0, "completion_tokens": 0},
    }
    assert reused_answers(run, {"inference": [{"kind": "openai"}]}) == {}


@pytest.mark.parametrize(
    ("prices", "cost"),
    [((2, 10, None), 130), ((2, 10, 1), 90), ((2, None, None), None), ((None, 10, None), None), ((2, 0, 0), 40)],
)
def test_what_was_reused_costs_what_its_rows_have_in_the_column_cost(
    tmp_path: Path, prices: tuple[float | None, ...], cost: float | None
) -> None:
    run, job = numbered(tmp_path, 1), settings(tmp_path, "a", "vectors")
    for model in job["inference"][1:]:
        for kind, price in zip(("input", "output", "cached"), prices, strict=True):
            if price is not None:
                model[f"price_per_million_{kind}_tokens"] = price
    tokens = {"prompt_tokens": 60, "completion_tokens": 1, "cached_tokens": 40}
    write_log(run, "a.reused", {"key": "0" * 64, "answer": tokens})
    write_log(run, "vectors.reused", {"key": "0" * 64, "answer": {"prompt_tokens": 60, "completion_tokens": 0}})
    reused = reused_answers(run, job)
    assert reused["a"].get("cost") == (cost and pytest.approx(cost / 1e6))
    assert reused["vectors"].get("cost") == (prices[0] and pytest.approx(60 * prices[0] / 1e6))


def test_a_publish_that_is_killed_before_it_keeps_its_answers_keeps_them_when_it_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, sink = numbered(tmp_path, 1), ParquetSink(path=str(tmp_path / "out"))
    stage(run, {"x": [1, 2]})
    good = [{"key": "0", "answer": {"n": n}, "reuse": {"key": KEYS[n], "at": AT}} for n in (0, 1)]
    write_log(run, "openai", *good, {"key": "1", "answer": {"n": 2}})
    old = tmp_path / "answers/job/20200102T030405-g-openai.npy"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"")

    def die(*_: Any) -> None:
        monkeypatch.undo()
        raise Killed

    with ready_to_publish(run, sink) as (held, ready):
        receipt = receipt_of(held, sink, ready) | {"finished_at": "2999-01-02T03:04:05.678Z"}
        receipt["settings"] = settings(tmp_path, "openai")
        monkeypatch.setattr(publishing, "keep_answers", die)
        with pytest.raises(Killed):
            publish(held, sink, ready, NO_ERRORS, receipt)
        assert [path.name for path in old.parent.iterdir()] == [old.name]
        assert repair(held, sink)
    kept = KeptAnswers(Location(str(tmp_path / "answers")), 30)
    assert [kept.find(key) for key in KEYS] == [{"n": 0}, {"n": 1}, None]
    name = f"29990102T030405-{run.generation}-openai"
    assert {path.name for path in old.parent.iterdir()} == {f"{name}.jsonl.gz", f"{name}.npy"}
    assert not run.answers.exists()
