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
Places = frozenset[tuple[str, int]]
POINTS = [
    *(Case("parquet", store, programs) for store in ("disk", "memory")
      for programs in (("run", "force"), ("undo", "undo"), ("run", "clean"))),
    Case("parquet", "disk", ("retry", "force"), "all"), Case("images", "memory", ("undo", "force")),
]  # fmt: skip


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


def test_a_frozen_run_does_not_take_the_files_of_a_later_run_for_replaced_ones(folder: Path) -> None:
    with opened(UNDO, folder) as simulation:
        for k, operation in enumerate(simulation.play([Segment("A")]).of("A")):
            if "_kept" in "".join(operation.paths):
                simulation.play([Segment("A", k), Segment("B"), Segment("A")])
        assert simulation.count > 5
        assert_nothing_found(simulation)


def test_the_next_run_takes_back_an_undo_that_died_while_it_prepared_its_files(folder: Path) -> None:
    with opened(UNDO, folder) as simulation:
        names = [each.paths[-1].rsplit("/", 1)[-1] for each in simulation.play([Segment("A")]).of("A") if each.paths]
        for k in range(names.index("publishing.json"), names.index("publishing.json") + 12):
            simulation.play([Segment("A", k, "dies")])
        assert_nothing_found(simulation)


def test_a_forced_run_that_died_before_an_undo_of_its_settings_is_not_completed(folder: Path) -> None:
    with opened(FORCED, folder) as simulation:
        for k in range(len(simulation.play([Segment("A")]).of("A")) // 4, 200, 25):
            simulation.play([Segment("A", k, "dies"), Segment("B")])
        assert_nothing_found(simulation)


@pytest.mark.parametrize("programs", [("run", "force", "run"), ("undo", "force", "run")], ids=str)
def test_a_disk_that_fails_while_a_move_is_tried_mixes_no_rows(programs: tuple[str, ...], folder: Path) -> None:
    with opened(Case("parquet", "disk", programs, "all"), folder) as simulation:
        operations = simulation.play([Segment("A")]).of("A")
        first = next(k for k, each in enumerate(operations) if each.name == "os.mkdir" and "/.out" in each.paths[0])
        for k in range(first, first + 4):
            simulation.play([Segment("A", k, "dies")])
            for fault in ("raises before", "raises after"):
                simulation.play([Segment("A", k, fault), Segment("A")])
        assert_nothing_found(simulation)


def test_a_folder_beside_the_sink_goes_with_a_clean(folder: Path) -> None:
    with opened(Case("parquet", "disk", ("run", "force", "run"), "all"), folder) as simulation:
        operations = simulation.play([Segment("A")]).of("A")
        for k, operation in enumerate(operations):
            if ".out-publishing" in "".join(operation.paths) and operation.name == "os.rmdir":
                simulation.play([Segment("A", k, "raises before"), Segment("A")])
        first = next(k for k, each in enumerate(operations) if ".out-publishing" in "".join(each.paths))
        for k in range(first - 10, first):
            simulation.play([Segment("A", k), Segment("B"), Segment("A")])
        assert simulation.count > 15
        assert_nothing_found(simulation)


def test_a_kept_file_stays_if_the_disk_fails_after_it_was_moved(folder: Path) -> None:
    with opened(UNDO, folder) as simulation:
        for k, operation in enumerate(simulation.play([Segment("A")]).of("A")):
            if operation.name == "os.rename" and "_kept" in operation.paths[-1]:
                simulation.play([Segment("A", k, "raises after"), Segment("A")])
        assert simulation.count > 1
        assert_nothing_found(simulation)


def test_a_kept_folder_is_published_again_whole_if_the_store_fails_once(folder: Path) -> None:
    with opened(Case("images", "memory", UNDO.programs), folder) as simulation:
        for k, operation in enumerate(simulation.play([Segment("A")]).of("A")):
            if "".join(operation.paths).endswith(".images.kept"):
                for fault in ("raises before", "raises after"):
                    simulation.play([Segment("A", k, fault), Segment("A")])
        assert simulation.count > 7
        assert_nothing_found(simulation)


def test_a_receipt_that_is_half_written_goes_with_a_clean(folder: Path) -> None:
    with opened(DISK, folder) as simulation:
        paths = [each.paths[-1:] for each in simulation.play([Segment("A")]).of("A")]
        receipts = [k for k, last in enumerate(paths) if last and "/receipts/" in last[0]]
        for k in range(receipts[0], receipts[-1] + 2):
            simulation.play([Segment("A", k, "dies")])
        assert_nothing_found(simulation)


def test_a_lease_that_is_half_written_goes_with_a_clean_that_has_nothing_else_to_remove(folder: Path) -> None:
    with opened(UNDO, folder) as simulation:
        paths = [each.paths[-1:] for each in simulation.play([Segment("A")]).of("A")]
        first = next(k for k, last in enumerate(paths) if last and "/lease/" in last[0])
        for k in range(first, first + 4):
            simulation.play([Segment("A", k, "dies")])
        assert_nothing_found(simulation)


STORAGE_VERBS = {
    "write_bytes", "read_bytes", "names", "exists", "create", "copy_to", "move_to", "read_tail", "listdir", "rename",
    "unlink", "symlink", "swap", "rmdir", "write_json", "read_json", "read_each", "cp_file", "sleep",
}  # fmt: skip
CODE = (
    "tasks/write/publish/publish.py", "tasks/state/fenced.py", "tasks/state/lease.py", "tasks/state/staged_parts.py",
    "tasks/write/sinks/hive_files.py", "tasks/write/sinks/directory_swap.py", "tasks/write/sinks/earlier_files.py",
    "tasks/write/publish/undo.py", "tasks/state/published_rows.py", "tasks/state/publications.py",
    "flows/ledger/undo.py", "flows/ledger/garbage_collection.py",
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
    "manifest.copy_to(run.manifest)": "the simulated inputs never change, so no manifest is written",
    'return [*removable_sample(run, files), *removable_prepared(run, run.sink.names())], ""': "samples",
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


def points(simulation: Simulation) -> Places:
    """Freeze A, and let it die, at its first operation from each place in the code, and B too, which comes after it."""
    places, later_places = set[Places](), set[Places]()
    for k, operation in enumerate(simulation.play([Segment("A")]).of("A")):
        if operation.lines in places:
            continue
        places.add(operation.lines)
        frozen = simulation.play([Segment("A", k), Segment("B"), Segment("A")])
        died = simulation.play([Segment("A", k, "dies"), Segment("B")])
        for played in (frozen, died):
            assert k == len(died.of("A")) <= len(played.of("A"))
            for m, later in enumerate(played.of("B")):
                if later.lines not in later_places:
                    later_places.add(later.lines)
                    simulation.play([played.schedule[0], Segment("B", m), *played.schedule[2:], Segment("B")])
                    simulation.play([played.schedule[0], Segment("B", m, "dies"), *played.schedule[2:]])
    return frozenset[tuple[str, int]]().union(*places, *later_places)


@pytest.mark.nightly
def test_each_operation_of_the_code_is_a_point_at_which_a_run_is_frozen_and_one_at_which_it_dies(folder: Path) -> None:
    reached = set[tuple[str, int]]()
    for number, case in enumerate(POINTS):
        with opened(case, folder / str(number), has_lines=True) as simulation:
            reached |= points(simulation)
            assert_nothing_found(simulation)
    missed = []
    for path in CODE:
        for lines, text in operations_of(path):
            if text not in UNREACHED and reached.isdisjoint((path, line) for line in lines):
                missed.append(f"{path}: {text}")
    assert not missed, "\n".join(missed)
