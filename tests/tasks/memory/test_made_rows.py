"""A publish joins the small files of its run, and removes the oldest ones beyond the limits."""

from pathlib import Path

from overnight.tasks.infer.worker import Worker
from overnight.tasks.memory.made_rows import GIGABYTE, store, tidy
from overnight.tasks.memory.settings import Memory
from overnight.tasks.rows import rebatch
from tests.tasks.blocks import numbered_block
from tests.tasks.memory.test_known_rows import CALLS, GENERATION, link_of, worked
from tests.tasks.runs import make_run


def test_a_publish_joins_the_files_of_its_generation(tmp_path: Path) -> None:
    for number in range(3):
        worked(tmp_path, numbered_block(9).slice(number * 2, 2), f"a-{number:06d}")
    tidy(Memory(path=str(tmp_path / "memory"), days=100_000), GENERATION)
    tidy(Memory(path=str(tmp_path / "memory"), days=100_000), GENERATION)  # a publish that was interrupted repeats this
    assert len(list((tmp_path / "memory").rglob("*.rows"))) == len(list((tmp_path / "memory").rglob("*.npy"))) == 1
    CALLS.clear()
    _, known = worked(tmp_path, numbered_block(6), "b-000000")
    assert (known, CALLS) == ({"noting": 6}, [])


def test_the_oldest_rows_go_first_and_old_ones_go_by_their_days(tmp_path: Path) -> None:
    folder = tmp_path / "memory" / ("k" * 32)

    def kept() -> list[str]:
        return sorted({path.name[:8] for path in folder.glob("2*")})

    for day in (1, 3, 2):
        worker = Worker(link_of(tmp_path, is_read=False), make_run(tmp_path))
        store(rebatch.joined(worker.on([numbered_block(5)], None)), f"2026010{day}T000000-g-a-000000")
    size = sum(path.stat().st_size for path in folder.glob("2*"))
    tidy(Memory(path=str(tmp_path / "memory"), days=100_000), GENERATION)
    assert kept() == ["20260101", "20260102", "20260103"]
    tidy(Memory(path=str(tmp_path / "memory"), days=100_000, gigabytes=size * 0.5 / GIGABYTE), GENERATION)
    assert kept() == ["20260103"]
    tidy(Memory(path=str(tmp_path / "memory"), days=1), GENERATION)
    assert kept() == []
