"""Each kind of line in a result: an answer, a refusal, a row that was not tried, and what is none of them."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from overnight.tasks.infer.batch.collection import Collection
from overnight.tasks.infer.batch.provider import Batch, Phase, Result
from overnight.tasks.infer.chat.chat_completions import ChatCompletions
from overnight.tasks.storage.location import Location

KEYS = [f"{number:064x}" for number in range(7)]
ANSWER = {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}


def collected(folder: Path, *results: Result | None) -> tuple[Any, Collection]:
    def read(_: str) -> Iterator[Result | None]:
        yield from results

    provider: Any = SimpleNamespace(results=read)
    collection = Collection(provider, ChatCompletions(), Location(str(folder)), 0.5)
    batch = Batch("b", "completed", Phase.ENDED, completed=4, results=("file",))
    return collection.collect(batch, "00000-0", set(KEYS), {KEYS[0]: "later"}), collection


def test_each_line_counts_for_what_it_is(tmp_path: Path) -> None:
    found, collection = collected(
        tmp_path,
        Result(KEYS[0], ANSWER, 200),
        Result(KEYS[0], ANSWER, 200),
        Result(KEYS[1], None, 400, {"error": {"message": "odd"}}),
        Result(KEYS[2], None, 503, {"error": {"message": "busy"}}),
        Result(KEYS[3]),
        Result(KEYS[4], {"nothing": 1}, 200),
        Result(KEYS[5], None, None, {"code": "server_error", "message": "fell over"}),
        Result("f" * 64, ANSWER, 200),
        None,
    )
    assert (found.answered, found.refused) == ({KEYS[0]}, {KEYS[1]})
    assert (found.useless, found.unknown) == (1, 2)
    assert found.counts(4) == {"answered": 1, "refused": 1, "charged": 4}
    [line] = (tmp_path / "batch-00000-0.jsonl").read_text().splitlines()
    assert json.loads(line)["key"] == KEYS[0]
    assert json.loads(line)["answer"]["text"] == "yes"
    assert json.loads(line)["answer"]["price"] == 0.5
    assert json.loads(line)["reuse"]["key"] == "later"
    assert collection.count_answers() == 1


def test_the_answers_of_all_batches_are_counted_part_by_part(tmp_path: Path) -> None:
    _, collection = collected(tmp_path)
    for part in range(20):
        for batch, start in (("-0", 0), (".1-0", 1000), ("-1", 500)):  # the last one answers rows again
            keys = [f"{part:04x}{start + row:060x}" for row in range(1000)]
            (tmp_path / f"batch-{part:05}{batch}.jsonl").write_text("".join(f'{{"key": "{key}"}}\n' for key in keys))
    tracemalloc.start()
    count = collection.count_answers()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 40_000
    assert peak < 1_500_000  # all keys take 4 MB
