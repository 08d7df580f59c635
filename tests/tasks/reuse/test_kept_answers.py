"""What a publish keeps is found by later runs, also beside damaged files, for as many days as the job says."""

import logging
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overnight.tasks.reuse import kept_answers
from overnight.tasks.reuse.kept_answers import KeptAnswers, keep, remove_old
from overnight.tasks.reuse.settings import reuse_key
from overnight.tasks.storage.location import Location

NOW = time.strftime("%Y%m%dT%H%M%S", time.gmtime())


def key(number: int) -> str:
    return reuse_key("ChatCompletions", "http://x/v1", {"number": number}, None)


def lines(numbers: Any, days_ago: float = 0, **fields: Any) -> list[dict[str, Any]]:
    at = int(time.time() - days_ago * 86400)
    return [{"key": key(number), "answer": {"text": f"answer {number}", **fields}, "at": at} for number in numbers]


def answers(folder: Location, numbers: Any, days: float = 90) -> list[str | None]:
    kept = KeptAnswers(folder, days)
    return [answer and answer["text"] for answer in map(kept.find, map(key, numbers))]


@pytest.fixture(params=["local", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "local":
        return Location(str(tmp_path / "answers"))
    bucket = f"answers-{tmp_path.name.replace('_', '-').lower()[:40]}"
    request.getfixturevalue("s3").create_bucket(Bucket=bucket)
    return Location(f"s3://{bucket}/answers")


def test_answers_of_all_jobs_are_found(folder: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "ANSWERS_A_MEMBER", 7)
    assert answers(folder, [1]) == [None], "nothing is kept yet"
    assert keep(folder / "one", f"{NOW}-g-openai", lines(range(20))) == 20
    assert keep(folder / "two", f"{NOW}-h-openai", lines(range(20, 50))) == 30
    assert keep(folder / "two", f"{NOW}-i-openai", []) == 0
    assert answers(folder, range(51)) == [*[f"answer {number}" for number in range(50)], None]
    keep(folder / "one", f"{NOW}-g-openai", lines(range(20)))  # a publish that was interrupted repeats this
    assert len((folder / "one").names()) == 2


def test_an_answer_serves_for_so_many_days_and_the_newest_one_serves(tmp_path: Path) -> None:
    folder = Location(str(tmp_path))
    keep(folder / "job", f"{NOW}-a-m", lines([1], days_ago=3, text="three days old"))
    keep(folder / "job", f"{NOW}-b-m", [*lines([1], days_ago=5, text="five days old"), *lines([2], days_ago=5)])
    assert answers(folder, [1, 2]) == ["three days old", "answer 2"]
    assert answers(folder, [1, 2], days=4) == ["three days old", None]
    assert answers(folder, [1, 2], days=2) == [None, None]
    keep(folder / "job", "20200102T030405-c-m", lines([3]))
    (tmp_path / "job/mine.txt").write_text("not Overnight's")
    remove_old(folder / "job", 90)
    assert {name[:8] for name in (folder / "job").names()} == {NOW[:8], "mine.txt"}


def test_damaged_files_are_skipped_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = Location(str(tmp_path))
    for number in range(3):
        keep(folder / "job", f"{NOW}-{number}-m", lines([number, number + 10]))
    first, second = tmp_path / f"job/{NOW}-0-m.npy", tmp_path / f"job/{NOW}-1-m.jsonl.gz"
    first.write_bytes(first.read_bytes()[:-5])
    second.write_bytes(second.read_bytes()[:-9])
    (tmp_path / f"job/{NOW}-x.npy").write_bytes(b"")
    np.save(tmp_path / f"job/{NOW}-y.npy", np.arange(3))
    with caplog.at_level(logging.WARNING):
        assert answers(folder, [0, 1, 2, 10, 11, 12]) == [None, None, "answer 2", None, None, "answer 12"]
    assert [record.getMessage().split(": ")[0].rsplit("-", 2)[-2:] for record in caplog.records] == [
        ["0", "m.npy"],
        [f"{tmp_path}/job/{NOW}".rsplit("-", 1)[-1], "x.npy"],
        [f"{tmp_path}/job/{NOW}".rsplit("-", 1)[-1], "y.npy"],
        ["1", "m.jsonl.gz"],
    ]
    kept = KeptAnswers(folder, 90)
    (tmp_path / f"job/{NOW}-2-m.jsonl.gz").unlink()
    assert kept.find(key(2)) is None, "its job removed it meanwhile"


def test_writers_and_readers_share_a_folder_at_the_same_time(tmp_path: Path) -> None:
    folder, rows = Location(str(tmp_path)), 300

    def write(job: int) -> None:
        for number in range(5):
            keep(folder / f"job-{job}", f"{NOW}-{number}-m", lines(range(job * rows, (job + 1) * rows)))

    writers = [threading.Thread(target=write, args=(job,)) for job in range(4)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert set(answers(folder, range(0, 4 * rows, 100))) <= {
            None,
            *(f"answer {n}" for n in range(0, 4 * rows, 100)),
        }
    assert None not in answers(folder, range(4 * rows))
