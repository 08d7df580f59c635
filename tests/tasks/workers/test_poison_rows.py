"""A row that kills its worker is found among any number of others, in few deaths, and nobody else is condemned."""

from hypothesis import given
from hypothesis import strategies as st

from overnight.tasks.workers import poison_rows
from overnight.tasks.workers.poison_rows import DEATHS, PIECES, UNEXPLAINED, PoisonRowTracker, RowsBegun


def run_until_done(
    suspects: PoisonRowTracker, count: int, killers: set[int], certain: bool = False
) -> tuple[set[int], int]:
    """Plays workers that die of `killers` until a block of `count` rows is through: (condemned rows, deaths)."""
    for deaths in range(1000):
        worker = f"worker {deaths}"
        pieces, condemned = suspects.judge(worker, "block", count)
        assert sorted([*condemned, *(row for start, stop in pieces for row in range(start, stop))]) == [*range(count)]
        for start, stop in pieces:
            suspects.on(RowsBegun(worker, "block", start, stop))
            if killers.intersection(range(start, stop)):
                if certain:
                    suspects.on(poison_rows.DeathExplained(worker, ("RowTimeout", "too long"), True))
                break
        else:
            suspects.on(poison_rows.RowsEnded(worker))
            return set(condemned), deaths
    raise AssertionError("never done")


@given(st.integers(1, 1000), st.data())
def test_exactly_the_killers_are_condemned_in_few_deaths(count: int, data: st.DataObject):
    killers = data.draw(st.sets(st.integers(0, count - 1), max_size=3))
    condemned, deaths = run_until_done(PoisonRowTracker(), count, killers)
    assert condemned == killers
    splits = 0
    while PIECES ** (splits + 1) < count:
        splits += 1
    assert deaths <= len(killers) * (splits + DEATHS)


def test_a_row_that_certainly_took_too_long_is_not_tried_twice():
    condemned, deaths = run_until_done(PoisonRowTracker(), 16, {5}, certain=True)
    assert (condemned, deaths) == ({5}, 1)


def test_a_worker_killed_by_somebody_else_condemns_nobody():
    suspects = PoisonRowTracker()
    pieces, _ = suspects.judge("first", "block", 3)
    suspects.on(RowsBegun("first", "block", *pieces[0]))
    assert suspects.judge("second", "block", 3) == (pieces, {})
    suspects.on(RowsBegun("second", "block", *pieces[0]))
    suspects.on(poison_rows.RowsEnded("second"))
    assert suspects.judge("third", "block", 3) == (pieces, {})


def test_the_reason_that_a_worker_gave_is_the_one_recorded():
    suspects = PoisonRowTracker()
    for worker in range(DEATHS):
        suspects.judge(str(worker), "block", 1)
        suspects.on(RowsBegun(str(worker), "block", 0, 1))
        if worker:
            suspects.on(poison_rows.DeathExplained(str(worker), ("AcceleratorError", "device lost"), False))
    assert suspects.judge("last", "block", 1) == ([], {0: ("AcceleratorError", "device lost")})
    for worker in range(DEATHS):
        suspects.judge(str(worker), "other", 1)
        suspects.on(RowsBegun(str(worker), "other", 0, 1))
    assert suspects.judge("last", "other", 1) == ([], {0: UNEXPLAINED})


def test_only_a_block_that_another_worker_began_and_never_left_is_suspicious():
    suspects = PoisonRowTracker()
    assert suspects.arrive("a", "block") == (False, False)
    assert suspects.arrive("a", "next") == (False, False)  # a came through
    assert suspects.arrive("b", "block") == (False, False)
    suspects.on(poison_rows.BlockLeft("b"))
    assert suspects.arrive("c", "block") == (False, False)
    assert suspects.arrive("d", "block") == (True, True)
