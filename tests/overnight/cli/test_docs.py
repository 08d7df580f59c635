"""`overnight docs` as a user types it: pages, keys, commands and names of the Python API."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from overnight.cli.main import main


def printed(name: str = "") -> str:
    result = CliRunner().invoke(main, ["docs", *name.split()])
    assert result.exit_code == 0, result.output
    return result.output


def test_without_a_name_it_lists_every_page_with_its_title() -> None:
    listed = printed()
    assert "| `how-to/chat` | Chat |" in listed
    assert "| `reference/python` | The Python API |" in listed
    assert "| `reference/job-file/sink` | Sinks |" in listed


@pytest.mark.parametrize(
    ("name", "heading", "words"),
    [
        ("inference.image_embedding.batch_size", "inference.image_embedding.batch_size", "- default: `auto`"),
        ("inference.0.batch_size", "inference.batch_size", "- default: `auto`"),
        ("sink.parquet", "sink: kind parquet", "| `compression` |"),
        ("checks", "Checks", "| `min_rows` |"),
        ("source.images.wait_for.quiet_minutes", "source.images.wait_for.quiet_minutes", "no input was added"),
        ("backfill", "overnight backfill", "--max-concurrent"),
        ("docs/how-to/video.md", "Objects in videos", "`video-objects.yaml`"),
        ("exit codes", "Exit codes and variables", "OVERNIGHT_CLUSTER"),
        ("notify.webhook", "notify.webhook", "- type: text"),
        ("overnight.run", "overnight.run", "retry_quarantined"),
        ("overnight.Job", "overnight.Job", "`name`, "),
        ("reference/python", "The Python API", "## overnight.Receipt"),
        ("extend.Sink", "Sink", "`commit("),
        ("changelog", "Changelog", "Unreleased"),
    ],
)
def test_a_name_prints_its_page(name: str, heading: str, words: str) -> None:
    text = printed(name)
    assert text.startswith(f"# {heading}\n")
    assert words in text


def test_a_word_that_means_two_things_prints_one_and_names_the_other() -> None:
    assert printed("chat").startswith("# Chat\n")
    assert printed("chat").endswith("Also: inference.chat\n")


def test_a_name_of_a_command_and_of_a_key_prints_both() -> None:
    text = printed("notify")
    assert text.startswith("# overnight notify\n")
    assert "# Receivers\n" in text
    assert "Also: operations/notify" in text


def test_a_word_that_means_many_things_prints_their_list() -> None:
    assert "| `source.images.path` | A directory" in printed("path")
    assert "| `sink.parquet.path` | Directory of the table" in printed("path")


def test_an_unknown_name_is_bad_usage_and_shows_similar_names_and_pages_with_the_text() -> None:
    result = CliRunner().invoke(main, ["docs", "sink.parquet.compresion"])
    assert result.exit_code == 2
    assert "found 'sink.parquet.compresion'. Names like it: sink.parquet.compression" in result.output
    assert "reference/exit-codes" in CliRunner().invoke(main, ["docs", "OVERNIGHT_CLUSTER"]).output


def test_a_terminal_gets_formatted_text_and_a_pipe_gets_markdown() -> None:
    command = [str(Path(sys.executable).with_name("overnight")), "docs", "sink.parquet"]
    master, slave = pty.openpty()
    with subprocess.Popen(command, stdout=slave, env={**os.environ, "TERM": "xterm"}) as running:
        os.close(slave)
        shown = b""
        while piece := _read(master):
            shown += piece
    assert running.returncode == 0
    assert b"\x1b[" in shown
    assert b"| --- |" not in shown
    assert "| --- |" in printed("sink.parquet")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the command has ended
        return b""
