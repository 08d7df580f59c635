"""The pages of the command line and of Python have each command and each name."""

import overnight
from overnight.cli.main import main
from overnight.cli.reference.api_pages import COLUMNS, command_page, extend_page, python_page


def test_each_command_has_its_help_in_lines_that_fit() -> None:
    page = "\n".join(command_page(main))
    assert [name for name in main.commands if f"\n## overnight {name}\n" not in page] == []
    assert max(map(len, page.splitlines())) <= COLUMNS


def test_each_function_of_the_api_has_its_signature_and_each_error_a_line() -> None:
    page = "\n".join(python_page())
    assert "`overnight.status(job, " in page
    assert "- `job`: The path of a job file" in page
    assert [name for name in overnight.__all__ if name not in page and name != "extend"] == []


def test_each_class_to_extend_lists_the_methods_that_a_leaf_must_have() -> None:
    page = "\n".join(extend_page())
    assert "## Sink" in page
    assert "- `commit(run, prepared, old)`: " in page
