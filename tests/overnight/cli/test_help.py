"""The help of the command line, as a new user reads it."""

import pytest
from click.testing import CliRunner

from overnight.cli.main import main


def test_overnight_alone_lists_the_first_five_commands_in_the_order_of_need() -> None:
    shown = CliRunner().invoke(main, []).output

    first, others = shown.split("First commands, in this order:")[1].split("Other commands:")
    assert [line.split()[0] for line in first.split("\n") if line] == ["init", "run", "status", "backfill", "deploy"]
    assert {line.split()[0] for line in others.split("\n\n")[0].split("\n") if line} == set(main.commands) - {
        *("init", "run", "status", "backfill", "deploy")
    }
    assert "..." not in shown.split("First commands")[1]


@pytest.mark.parametrize("command", [None, *main.commands])
def test_every_help_says_the_exit_status(command: str | None) -> None:
    shown = CliRunner().invoke(main, [*([command] if command else []), "--help"]).output

    assert "Exit status: 0 success, 1 failure, 2 bad usage or a bad job file." in shown


@pytest.mark.parametrize("command", main.commands)
def test_every_option_has_a_help_text(command: str) -> None:
    options = [option for option in main.commands[command].params if option.param_type_name == "option"]

    assert all(getattr(option, "help", None) for option in options)
