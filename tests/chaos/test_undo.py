"""Undo whose process is killed at random moments: readers see one publication, and the next undo repairs it."""

import multiprocessing
import random
import time
from pathlib import Path

import pytest

from overnight.flows.job.loading import load_job
from overnight.flows.ledger.undo import undo
from tests.flows.ledger.test_undo import NEW, OLD, job_in, published, reading, rows_of


def undo_in_process(file: str) -> None:
    undo(load_job(file))


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(8, marks=(pytest.mark.slow, pytest.mark.chaos)),
        pytest.param(50, marks=(pytest.mark.slow, pytest.mark.nightly)),
    ],
)
def test_an_undo_that_is_killed_leaves_one_publication_and_the_next_one_repairs_it(kills: int, tmp_path: Path) -> None:
    job, out, seed = job_in(tmp_path), tmp_path / "out", random.randrange(10**6)
    published(job, OLD)
    published(job, NEW)
    print(f"seed {seed}")
    moments, context = random.Random(seed), multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["overnight.flows.ledger.undo", "overnight.flows.job.loading", __name__])
    seconds = 0.0
    with reading(out) as seen:
        for number in range(kills + 1):
            process = context.Process(target=undo_in_process, args=(str(tmp_path / "job.yaml"),))
            begin = time.monotonic()
            process.start()
            process.join(moments.uniform(0, seconds) if number else None)
            process.kill()
            process.join()
            seconds = seconds or time.monotonic() - begin
    print(f"a reader saw {dict(seen)}")
    assert seen.keys() == {tuple(OLD), tuple(NEW)}
    undo(job)
    assert rows_of(job) in (OLD, NEW)
    assert not (out / "_overnight/all/publishing.json").exists()
    assert [path.name for path in (*out.iterdir(), *tmp_path.iterdir()) if "publishing" in path.name] == []
    assert len(list((out / "_kept").iterdir())) == 1
