"""One case: a sink on a store, and the programs of its processes. It plays schedules, and keeps what they found."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import fsspec
import pytest

from overnight.flows.ledger import undo
from tests.contracts.crash_points.attempts import Work
from tests.contracts.crash_points.places import DAY, Place
from tests.simulator.programs import PROGRAMS, Site
from tests.simulator.readers import Fault, Reader
from tests.simulator.schedules import Played
from tests.simulator.seams import Machine
from tests.simulator.world import Process, Segment, World

BEGINNING = 900_000.0
AT_LAST = (Segment("next"), Segment("last"))


@dataclass(frozen=True)
class Case:
    """A sink on `disk` or an object store (`memory`), a partition, and the programs of the processes A, B and C."""

    kind: str
    store: str
    programs: tuple[str, ...]
    partition: str = DAY

    @property
    def before(self) -> tuple[str, ...]:
        """The programs that published before. A run has work if the last of them had other settings."""
        if "undo" not in self.programs:
            return ("then",)
        return ("then", "then" if "run" in self.programs[:2] else "force")

    def __str__(self) -> str:
        return f"{self.kind} on {self.store}, {self.partition}: {' and '.join(self.programs)}"


@dataclass(frozen=True)
class Found:
    """A schedule after which something was wrong."""

    case: Case
    schedule: tuple[Segment, ...]
    fault: Fault

    def __str__(self) -> str:
        turns = [f"{turn.process}:{turn.count if turn.count < 10**9 else 'end'}{turn.fault and f' {turn.fault}'}"
                 for turn in self.schedule]  # fmt: skip
        return f"{self.fault.kind}: {self.case}, schedule {' '.join(turns)}: {self.fault.reason}"


@dataclass
class Simulation:
    """Plays schedules of a case. Make it within `opened`."""

    case: Case
    site: Site
    machine: Machine
    has_lines: bool = False
    found: list[Found] = field(default_factory=list)
    count: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._first_rows: dict[str, tuple[int, ...]] = {}
        assert self.site.inputs
        for number, program in enumerate(self.case.before):
            world = World(lambda operation: None, BEGINNING + 1000.0 * number)
            process = self._add(world, f"before-{number}", program)
            with self.machine.playing(world):
                world.play([Segment(process.name)])
            assert isinstance(process.outcome, dict), process.outcome
        self._first_rows = dict(self.site.rows)
        self._restore = self.site.place.kept()

    def play(self, schedule: Sequence[Segment]) -> Played:
        """Play a schedule on the old partition, then the next run and a clean, and look on all the time."""
        self._restore()
        self.site.rows = dict(self._first_rows)
        reader = Reader(self.site, self.site.run())
        reader.look("at first")
        world = World(reader.saw, has_lines=self.has_lines)
        for name, program in zip("ABC", self.case.programs, strict=False):
            self._add(world, name, program)
        self._add(world, "next", "run")
        self._add(world, "last", "clean")
        with self.machine.playing(world):
            world.play([*schedule, *AT_LAST])
        for name in ("next", "last"):
            if isinstance(outcome := world.processes[name].outcome, BaseException):
                reader.faults.append(Fault("lost", f"the {name} run failed: {outcome!r}"))
        reader.look_at_the_end()
        if reader.faults:
            self.found.append(Found(self.case, tuple(schedule), reader.faults[0]))
        self.count += 1
        self.operations.update(operation.name for operation in world.trace)
        return Played(tuple(schedule), world.trace)

    def play_all(self, played: Iterable[Played]) -> "Simulation":
        for _ in played:
            pass
        return self

    @property
    def schedules_per_minute(self) -> float:
        return 60 * self.count / (time.monotonic() - self.began)

    def _add(self, world: World, name: str, program: str) -> Process:
        return world.add(name, lambda: PROGRAMS[program](self.site, name))


@contextlib.contextmanager
def opened(case: Case, folder: Path, has_lines: bool = False) -> Iterator[Simulation]:
    """Yield the simulation of a case, whose files are below the folder or in an object store in memory."""
    root = f"memory://{folder.name}/place" if case.store == "memory" else str(folder / "place")
    with Machine().patched() as machine:
        site = Site(Place(case.kind, root, case.partition, Work([], undo="undo" in case.programs), []))
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(undo, "publish_earlier", site.publish_earlier)
                yield Simulation(case, site, machine, has_lines)
        finally:
            if case.store == "memory":
                memory = fsspec.filesystem("memory")
                with contextlib.suppress(FileNotFoundError):
                    memory.rm(root.removeprefix("memory:/").removesuffix("/place"), recursive=True)
