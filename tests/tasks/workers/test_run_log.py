"""The run's log keeps its first and last lines, and says how many it leaves out."""

from overnight.tasks.workers.run_log import FIRST_LINES, LAST_LINES, RunLog, text


def test_a_log_keeps_its_first_and_last_lines_and_counts_those_between() -> None:
    log = RunLog()
    for line in range(FIRST_LINES + LAST_LINES + 5):
        log.add([str(line)])
    lines = text(*log.since(0)).splitlines()
    assert lines[FIRST_LINES] == "... 5 lines are left out here ..."
    assert (lines[0], lines[FIRST_LINES - 1], lines[FIRST_LINES + 1]) == ("0", "1999", "2005")
    assert len(lines) == FIRST_LINES + 1 + LAST_LINES


def test_lines_since_a_number_are_those_that_came_after_it() -> None:
    log = RunLog()
    log.add(["a", "b", "c"])
    assert log.since(0) == (3, ["a", "b", "c"])
    assert log.since(2) == (3, ["c"])
    log.add([str(line) for line in range(FIRST_LINES + LAST_LINES + 7)])
    count, lines = log.since(FIRST_LINES + 1)
    assert (count, len(lines), lines[-1]) == (FIRST_LINES + LAST_LINES + 10, LAST_LINES, "4006")
    assert log.since(count - 1)[1] == ["4006"]
    assert log.since(count)[1] == []


def test_a_reader_of_a_log_that_began_again_gets_all_of_it() -> None:
    log = RunLog()
    log.add(["a"])
    assert log.since(70) == (1, ["a"])
