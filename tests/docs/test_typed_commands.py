"""The commands of the pages outside docs/how-to/: README.md, the tutorial, operations and the reference.

The tutorial's commands run in their order. `serve`, `deploy` and `doctor` run in tests/packaging/test_wheel.py. The
other pages name jobs that exist only there, so the command line only reads those commands: a wrong option fails.
"""

import os
import re
import shlex
import sys
from pathlib import Path

import click
import pytest
from PIL import Image

from overnight.cli.main import main
from tests import warm_commands
from tests.flows.shipped_jobs import ROOT

TUTORIAL = ROOT / "docs/tutorial.md"
OTHERS = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if "how-to" not in page.parts]
COMMAND = re.compile(rf"^(?:    )?(overnight (?:{'|'.join(main.commands)}) .*)$", re.MULTILINE)
ELSEWHERE = ("overnight serve", "overnight deploy", "overnight doctor")
DAYS = {"2026-10-01": "2026-11-17"}  # so that the backfill has two days instead of 49


def typed(page: Path) -> list[str]:
    return COMMAND.findall(page.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_tutorial_s_commands_run_in_their_order(prefect_api: str, ray_session: None, tmp_path: Path) -> None:
    for folder in ("photos", *(f"days/date=2026-11-{day}" for day in (17, 18, 19))):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(12):
            Image.new("RGB", (64, 48), (number, 0, 0)).save(tmp_path / folder / f"{number}.png")
    lines = [line for line in typed(TUTORIAL) if not line.startswith(ELSEWHERE)]
    [first_of_a_day] = [place for place, line in enumerate(lines) if line.endswith("--partition 2026-11-19")]
    change = r's#path: \(.*\)photos/#path: "\1days/date={partition}/"#; s#/brightness}#/by_day}#'
    to_days = f"sed -i '{change}' brightness.yaml"  # as section 6 asks its reader to
    script = "\n".join([*lines[:first_of_a_day], to_days, *lines[first_of_a_day:]])
    for written, wanted in DAYS.items():
        script = script.replace(written, wanted)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PREFECT_API_URL": prefect_api,
    }

    done = warm_commands.run_script(script, tmp_path, environment, lambda program, arguments, code: None)

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "brightness: would run 2 partitions" in done.stdout
    assert "brightness: 2 of 2 partitions published" in done.stdout
    receipts = sorted(tmp_path.glob("predictions/*/_overnight/*/receipt.json"))
    assert [receipt.parent.name for receipt in receipts] == [
        "all",
        *(f"date=2026-11-{day}" for day in (17, 18, 19)),
    ]


@pytest.mark.parametrize("page", [page for page in OTHERS if typed(page)], ids=lambda page: page.stem)
def test_the_command_line_reads_the_commands_of_the_other_pages(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = []
    for line in typed(page):
        _, name, *arguments = shlex.split(line.partition(" > ")[0], comments=True)
        for argument in arguments:
            if argument.endswith(".yaml"):
                Path(argument).parent.mkdir(parents=True, exist_ok=True)
                Path(argument).touch()
        try:
            main.commands[name].make_context(name, arguments)
        except click.UsageError as error:
            refused.append(f"{line}: {error.format_message()}")
    assert refused == []
