"""The commands of `overnight`, as the leaves of one suite: what each promises about jobs, days and servers."""

from dataclasses import dataclass
from pathlib import Path

from overnight.cli.main import main
from tests.contracts.suite import Suite

DAY = "2026-01-02"


@dataclass(frozen=True)
class Command:
    """How a test calls a command: its arguments, in which JOB is the path of a job file."""

    line: str

    def arguments(self, *paths: Path) -> list[str]:
        """The arguments for these job files; a command that takes one file gets the first."""
        words: list[str] = []
        for word in self.line.split():
            words += {"JOB": [str(paths[0])], "JOBS": [str(path) for path in paths]}.get(word, [word])
        return words


COMMANDS = {
    "init": Command("init"),
    "run": Command(f"run JOB --partition {DAY}"),
    "status": Command("status JOB"),
    "backfill": Command(f"backfill JOB --start {DAY} --end {DAY}"),
    "deploy": Command("deploy JOBS"),
    "preview": Command(f"preview JOB --partition {DAY}"),
    "plan": Command(f"plan JOB --start {DAY} --end {DAY}"),
    "show": Command(f"show JOB --partition {DAY}"),
    "diff": Command(f"diff JOB {DAY} {DAY}"),
    "compare": Command(f"compare JOB --partition {DAY} --set checks.min_rows=0"),
    "verify": Command(f"verify JOB --partition {DAY}"),
    "undo": Command(f"undo JOB --partition {DAY}"),
    "history": Command("history JOB"),
    "site": Command("site ."),
    "validate": Command("validate JOB"),
    "search": Command("search JOB --text x"),
    "chaos": Command(f"chaos JOB --partition {DAY}"),
    "serve": Command("serve JOBS"),
    "notify": Command("notify JOB"),
    "metrics": Command("metrics JOB"),
    "doctor": Command("doctor JOB"),
    "clean": Command("clean JOB"),
    "remove": Command("remove JOB"),
    "docs": Command("docs"),
}

COMMAND = Suite("Orchestration: commands", set(main.commands), COMMANDS)
