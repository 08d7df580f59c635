"""The help of the command line, as a new user reads it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from overnight.cli.main import main

FIRST = ["init", "run", "status", "backfill", "deploy"]


def test_overnight_alone_lists_the_first_five_commands_in_the_order_of_need() -> None:
    shown = CliRunner().invoke(main, []).output
    first, *others = re.findall(r"(?<=:\n)(?:  .+\n)+", shown.split("Options:")[1].partition("\n\n")[2])[:3]
    assert [line.split()[0] for line in first.splitlines()] == FIRST
    assert {line.split()[0] for line in "".join(others).splitlines()} == set(main.commands) - {*FIRST}
    assert "..." not in shown.split("First commands")[1]


@pytest.mark.parametrize("command", ["", *main.commands])
def test_every_help_has_the_exit_status_and_a_text_for_each_option(command: str) -> None:
    shown = CliRunner().invoke(main, [*command.split(), "--help"]).output
    assert "Exit status: 0 success, 1 failure, 2 bad usage or a bad job file." in shown
    options = [option for option in main.commands.get(command, main).params if option.param_type_name == "option"]
    assert all(getattr(option, "help", None) for option in options)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ba"], ["backfill"]),
        (["backfill", "--max"], ["--max-concurrent"]),
        (["run", "my_job"], ["file"]),
        (["deploy", "one.yaml", "two"], ["file"]),
    ],
)
def test_commands_and_options_complete_by_their_names_and_job_files_as_files(
    words: list[str], offered: list[str]
) -> None:
    found = ShellComplete(main, {}, "overnight", "_OVERNIGHT_COMPLETE").get_completions(words[:-1], words[-1])
    assert [item.type if item.type == "file" else item.value for item in found] == offered


def test_the_line_that_the_help_gives_turns_on_completion_in_bash() -> None:
    shown = CliRunner().invoke(main, ["--help"]).output
    line = next(line for line in shown.splitlines() if "bash_source" in line)
    script = f"{line}\nCOMP_WORDS=(overnight ba) COMP_CWORD=1; _overnight_completion overnight; echo ${{COMPREPLY[@]}}"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "backfill\n"
