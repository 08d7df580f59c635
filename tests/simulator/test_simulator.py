"""Runs at one partition that die, fail and are frozen at their operations: readers see one version, nothing is lost.

The quick tests play a share of the schedules; at night each case is played whole. A failure prints its schedule:
`Simulation.play` plays it again.
"""

import ast
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator.bugs import BUGS
from tests.simulator.cases import CASES, FOLDER_IN_MEMORY
from tests.simulator.schedules import DRAWN, FAULTS, schedules
from tests.simulator.simulation import Case, Simulation, opened
from tests.simulator.world import Segment

ROOT = Path(__file__).parents[2]
DISK, STORE = Case("parquet", "disk", ("run", "force", "run")), Case("parquet", "memory", ("run", "force", "run"))
UNDO, FORCED = Case("parquet", "disk", ("undo", "force", "run")), Case("parquet", "disk", ("force", "undo", "run"))
SINGLE = ("one death", "an error", "a pause")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder on a disk in memory, if there is one."""
    with tempfile.TemporaryDirectory(dir=FOLDER_IN_MEMORY, prefix="overnight-simulator-") as folder:
        yield Path(folder)


def assert_nothing_found(simulation: Simulation) -> None:
    print(f"{simulation.case}: {simulation.count} schedules, {simulation.schedules_per_minute:,.0f} a minute")
    assert not simulation.found, "\n".join(map(str, simulation.found[:5]))


@pytest.mark.parametrize(("case", "fault", "share"), [
    (DISK, "one death", 30), (DISK, "a pause", 42), (STORE, "one death", 18), (STORE, "a pause", 30),
    (STORE, "an error", 54), (STORE, DRAWN, 100), (DISK, DRAWN, 100),
    (STORE, "two pauses", 400), (DISK, "two deaths", 400), (UNDO, "a pause", 78),
], ids=str)  # fmt: skip
def test_a_share_of_the_schedules_finds_nothing(case: Case, fault: str, share: int, folder: Path) -> None:
    with opened(case, folder) as simulation:
        assert_nothing_found(simulation.play_all(schedules(simulation.play, fault, share)))


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_schedules_find_nothing(case: Case, fault: str, folder: Path) -> None:
    with opened(case, folder) as simulation:
        assert_nothing_found(simulation.play_all(schedules(simulation.play, fault)))


FINDS: dict[str, tuple[Case, str]] = {
    "fence_off": (DISK, "a pause"),
    "order_swapped": (DISK, "one death"),
    "merge_short": (STORE, "one death"),
    "old_files_first": (STORE, "one death"),
    "drafts_stay": (STORE, "a pause"),
    "exchange_file_by_file": (DISK, "one death"),
    "never_completed": (STORE, "one death"),
    "undone_rows_run_again": (UNDO, "one death"),
    "forced_runs_survive_an_undo": (FORCED, "two deaths"),
    "undo_moves": (UNDO, "one death"),
    "keep_unfenced": (UNDO, "a pause"),
    "records_stay": (UNDO, "one death"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_fault_that_is_put_into_the_product_is_found(bug: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, fault = FINDS[bug]
    with opened(case, folder) as simulation:
        BUGS[bug](monkeypatch)
        for _ in schedules(simulation.play, fault, 12):
            if simulation.found:
                return
    pytest.fail(f"{simulation.count} schedules did not find {bug}")


# The mended faults, each with the schedule that showed it.
def test_a_run_that_is_frozen_before_it_writes_the_receipt_does_not_replace_that_of_a_later_run(folder: Path) -> None:
    def just_before_the_receipt(simulation: Simulation) -> int:
        names = [(each.name, each.paths[-1:]) for each in simulation.play([Segment("A")]).of("A")]
        return max(
            k for k, (_, paths) in enumerate(names) if paths and paths[0].endswith("date=2026-01-02/receipt.json")
        )

    with opened(DISK, folder) as simulation:
        k = just_before_the_receipt(simulation)
        for before in range(12):
            simulation.play([Segment("A", k - before), Segment("B"), Segment("A")])
        assert_nothing_found(simulation)


def test_an_error_of_the_disk_is_not_taken_for_a_filesystem_without_exchange(folder: Path) -> None:
    with opened(DISK, folder) as simulation:
        names = [each.name for each in simulation.play([Segment("A")]).of("A")]
        for fault in ("raises before", "raises after"):
            simulation.play([Segment("A", names.index("directory_swap.swap"), fault), Segment("A")])
        assert_nothing_found(simulation)


def test_a_receipt_that_is_half_written_goes_with_a_clean(folder: Path) -> None:
    with opened(DISK, folder) as simulation:
        paths = [each.paths[-1:] for each in simulation.play([Segment("A")]).of("A")]
        receipts = [k for k, last in enumerate(paths) if last and "/receipts/" in last[0]]
        for k in range(receipts[0], receipts[-1] + 2):
            simulation.play([Segment("A", k, "dies")])
        assert_nothing_found(simulation)


STORAGE_VERBS = {
    "write_bytes", "read_bytes", "names", "exists", "create", "copy_to", "move_to", "read_tail", "listdir", "rename",
    "unlink", "symlink", "swap", "rmdir", "write_json", "read_json",
}  # fmt: skip
CODE = (
    "tasks/write/publish/publish.py", "tasks/state/fenced.py", "tasks/state/lease.py", "tasks/state/staged_parts.py",
    "tasks/write/sinks/hive_files.py", "tasks/write/sinks/directory_swap.py",
)  # fmt: skip
# What the schedules below do not reach, by the text of its line.
UNREACHED = {
    "os.rename(target, new + FORMER)": "a system without renameat2",
    "os.rename(new, target)": "the first publish, which the cases of `all` make",
    "os.rename(new + FORMER, new)": "a system without renameat2",
    "os.rename(new + FORMER, new if os.path.isdir(target) else target)": "a system without renameat2",
    'os.rename(f"{source}/{name}", f"{target}/{name}")': "a system without renameat2",
    "os.rename(source, destination)": "a system without renameat2",
    "if rename(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE):": "a part of `swap`",
    "os.rmdir(directory)": "a sink's folder that is a mount of its own",
    '(parts / (name + ERRORS)).write_bytes(parquet_bytes(errors, "zstd"))': "a file like a part, before it",
    "tail = part.read_tail(size)": "a footer of more than 64 KiB",
}


def operations_of(path: str) -> Iterator[tuple[range, str]]:
    """The lines of each call that reaches the storage, and the first one's text."""
    text = (ROOT / path).read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in STORAGE_VERBS:
                yield (
                    range(node.lineno, (node.end_lineno or node.lineno) + 1),
                    text.splitlines()[node.lineno - 1].strip(),
                )


def test_each_operation_of_the_code_is_reached(folder: Path) -> None:
    sites: set[tuple[str, int]] = set()
    for number, case in enumerate((DISK, STORE, Case("parquet", "disk", ("retry", "force"), "all"))):
        with opened(case, folder / str(number), sites) as simulation:
            simulation.play([Segment("A"), Segment("B")])
            simulation.play_all(schedules(simulation.play, "one death", 66))
            simulation.play_all(schedules(simulation.play, "a pause", 78))
    with opened(UNDO, folder / "undo", sites) as simulation:
        simulation.play([Segment("A"), Segment("B")])
    reached = {(Path(name).name, line) for name, line in sites}
    missed = [
        f"{path}: {text}"
        for path in CODE
        for lines, text in operations_of(path)
        if text not in UNREACHED and not any((Path(path).name, line) in reached for line in lines)
    ]
    assert not missed, "\n".join(missed)
