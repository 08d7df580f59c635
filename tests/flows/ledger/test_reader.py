"""Receipts of earlier runs, for a forecast."""

from pathlib import Path

from overnight.flows.ledger.reader import earlier_receipts
from overnight.tasks.state.run import write_json
from overnight.tasks.storage.location import Location


def test_receipts_are_those_of_the_newest_days_and_all_of_the_own_day_each_once(tmp_path: Path) -> None:
    state = Location(str(tmp_path))
    for day in range(1, 5):
        write_json(state / f"date=2026-01-0{day}" / "receipt.json", {"job": "a", "day": day})
    write_json(state / "date=2026-01-05" / "receipt.json", {"job": "another"})
    for generation, day in (("x", 0), ("y", 4)):
        write_json(state / "date=2026-01-04" / "receipts" / f"{generation}.json", {"job": "a", "day": day})
    write_json(state / "backfills" / "1.json", {"job": "a"})

    def days(newest: int, ledger: str = "") -> list[int]:
        return [receipt["day"] for receipt in earlier_receipts(state, "date", "a", newest, ledger)]

    assert days(3) == [3, 4]
    assert days(3, "date=2026-01-04") == [3, 4, 0]
    assert earlier_receipts(state / "gone", "date", "a", 3) == []
    (state / "date=2026-01-03" / "receipt.json").write_bytes(b"{")  # a corrupt one costs no other
    assert days(3) == [4]
