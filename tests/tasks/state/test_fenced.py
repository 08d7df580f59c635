"""Files of the ledger that a run puts in place only while it holds the lease, on a disk and on an object store."""

from dataclasses import replace
from pathlib import Path

import pytest

from overnight.tasks.state import fenced, lease
from overnight.tasks.state.run import Run, read_json
from overnight.tasks.storage.location import Location
from tests.contracts.sinks.publications import holding, numbered


@pytest.fixture(params=["disk", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    place = tmp_path if request.param == "disk" else f"memory://{tmp_path.name}"
    return numbered(place, 1)


def test_a_file_is_put_in_place_and_removed_and_no_draft_stays(run: Run) -> None:
    with holding(run) as held:
        fenced.write_json(held, "receipt.json", {"rows": 1})
        assert read_json(run.ledger / "receipt.json") == {"rows": 1}
        fenced.remove(held, "receipt.json")
        fenced.remove(held, "receipt.json")
    assert read_json(run.ledger / "receipt.json") is None
    assert [name for draft in (run.ledger / "drafts").names() for name in (run.ledger / "drafts" / draft).names()] == []


@pytest.mark.parametrize("change", ["write", "remove"])
def test_a_change_that_was_checked_before_another_run_took_over_fails(
    run: Run, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later run takes over between the check and the change."""
    check, later = lease.check, list[int]()

    def check_and_lose(ledger: Location, token: int) -> None:
        check(ledger, token)
        if not later:
            later.append(token + 1)
            (ledger / "lease" / f"{token + 1:08d}").create(b"{}")
            (ledger / "drafts").remove()  # as `held` does
            (ledger / "receipt.json").write_bytes(b'{"of": "the later run"}')

    with holding(run) as held:
        monkeypatch.setattr(lease, "check", check_and_lose)
        if change == "write":
            with pytest.raises(lease.LeaseLost):
                fenced.write_json(held, "receipt.json", {"of": "the frozen run"})
        elif not str(run.ledger).startswith("memory:"):
            with pytest.raises(lease.LeaseLost):
                fenced.remove(held, "receipt.json")
        else:
            return  # on an object store the request may come late: see `remove`
    assert read_json(run.ledger / "receipt.json") == {"of": "the later run"}


def test_a_run_that_takes_over_removes_the_drafts_of_earlier_ones(run: Run) -> None:
    (lease.drafts(run.ledger, 7) / "receipt.json").write_bytes(b"{}")
    with holding(run) as held:
        assert (lease.drafts(run.ledger, 7) / "receipt.json").exists() is False
        fenced.write_json(replace(held, job="another"), "failure.json", {})
