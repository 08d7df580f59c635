"""Random faults and deaths of batches by seed: no row is lost, and each charge is a row's or reported as repeated."""

import random
from collections import Counter
from pathlib import Path

import pytest

from overnight.tasks.errors import JobError
from overnight.tasks.infer.batch.records import Clock
from tests.tasks.infer.batch.client import ROWS, answered, filling, keys
from tests.tasks.infer.batch_server import BatchServer, batch_server

FAULTS = (
    *("create_dropped", "create_503", "list_late", "token_limit", "expired", "only_errors", "no_files", "line_missing"),
    *("line_doubled", "line_cut", "content_502", "content_cut", "content_gone", "poll_429", "stuck", "usage_zeros"),
    *("upper_case", "failed", "look_404", "results_late", "content_404"),
)
DIALECTS = ("openai", "mistral", "anthropic", "gemini")
MOMENTS = ("upload-before", "upload-after", "create-before", "create-after", "look", "content-half")


class Died(BaseException):
    """The client's process ends here."""


def drawn_faults(random_numbers: random.Random) -> dict[int, set[str]]:
    faults = {}
    for number in range(6):
        faults[number] = set(random_numbers.sample(FAULTS, random_numbers.choice((0, 0, 1, 1, 2, 3))))
    return faults


def run_until_done(server: BatchServer, folder: Path, random_numbers: random.Random) -> tuple[dict, int]:
    """Fill the log, over as many lives of the client as it takes. Return the record and the number of lives."""
    clock = Clock(server.now, server.advance)
    settings = {"then": random_numbers.choice(("again", "online")), "dialect": server.dialect}
    if random_numbers.random() < 0.5:
        settings["enqueued_tokens"] = random_numbers.choice((100, 210, 1000))
    for life in range(1, 20):
        current = filling(server.url, folder, clock, **settings)
        turns = 0
        last = random_numbers.randint(0, 12) if life <= 3 else 10**6

        def show(_: str, last: int = last) -> None:
            nonlocal turns
            turns += 1
            if turns > last:
                raise Died

        if life <= 3 and random_numbers.random() < 0.5:
            server.kill_at[random_numbers.choice(MOMENTS)] = lambda: None  # the connection ends
        try:
            return current.run(show), life
        except (Died, JobError):
            server.offset += random_numbers.choice((0, 60, 3600, 100_000))
    raise AssertionError("expected an end within 20 lives")


def check(seed: int, folder: Path, dialect: str) -> Counter[str]:
    random_numbers = random.Random(seed)
    with batch_server(dialect) as server:
        server.faults = drawn_faults(random_numbers)
        record, lives = run_until_done(server, folder, random_numbers)
        found = answered(folder, dialect)
        charged = sum(server.charged.values())
        what = f"{dialect}, seed {seed}: {server.faults}, {lives} lives, {record}"
        assert record["charged"] == charged, what
        assert record["answered"] == len(found), what
        assert record["repeated"] == charged - len(found), what
        assert record["left"] == ROWS - len(found), what
        assert {key for key, count in server.charged.items() if count > 0} >= found, what
        assert found <= set(keys(dialect))
        return Counter(batches=len(server.batches), repeated=record["repeated"], left=record["left"], lives=lives)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("seed", range(3))
def test_no_row_is_lost_and_each_charge_is_accounted_for(seed: int, dialect: str, tmp_path: Path) -> None:
    check(seed, tmp_path, dialect)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_over_200_random_schedules_of_faults(dialect: str, tmp_path: Path) -> None:
    total = Counter[str]()
    for seed in range(1000, 1200):
        total += check(seed, tmp_path / str(seed), dialect)
    print(dict(total))
    assert total["lives"] > 200
    assert total["repeated"]
    assert total["left"]
