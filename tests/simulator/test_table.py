"""The page of simulated faults is that of the last simulation, and has each sink and fault of now."""

import json

from overnight.tasks.write.kinds import AnySink
from tests.contracts.suite import kinds_of
from tests.simulator.cases import CASES
from tests.simulator.readers import KINDS
from tests.simulator.schedules import FAULTS
from tests.simulator.table import PAGE, RESULTS, page, sinks


def test_the_page_is_written_from_the_last_simulation() -> None:
    assert PAGE.read_text() == page(json.loads(RESULTS.read_text())), "python -m tests.simulator.table"


def test_each_sink_and_fault_is_on_the_page_and_nothing_was_found() -> None:
    results = json.loads(RESULTS.read_text())["sinks"]
    assert list(results) == list(sinks())
    assert {case.kind for case in CASES} == kinds_of(AnySink)
    for faults in results.values():
        assert list(faults) == list(FAULTS)
        for counts in faults.values():
            assert counts["schedules"] > 1
            assert not any(counts[kind] for kind in KINDS)
