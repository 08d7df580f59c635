"""Secrets that a model prints or an error holds, in their usual forms, are in no text that leaves a process."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest

from overnight.tasks.config.masking import hide_variable, masked, masked_in, printable
from overnight.tasks.rows.error_text import error_message
from overnight.tasks.storage.database import expanded
from overnight.tasks.storage.location import expand
from tests.secret_forms import FORMS, WALNUT


@pytest.mark.parametrize("text", FORMS)
def test_a_secret_is_masked_by_its_form(text: str) -> None:
    shown = masked(f"the model said {text} and went on")
    assert not re.search(WALNUT, shown)
    assert shown.startswith("the model said ")
    assert masked(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:4200: mail me@example.org",
        "http://host:8080/photos/logo@2x.png",
        "s3://photos/logo@2x.png and me@example.org",
        "max_tokens=5, pad_token='</s>'",
        "the environment variable API_TOKEN is not set; see api_key_env",
        "a bearer of the ring and a basic text-classification2",
        "password=${PASSWORD}, Bearer ${TOKEN}",
        "monkey=5 and design=x",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert masked(text) == text


SECRET = "p/#?w <ö'\"x"


@pytest.mark.parametrize("form", [str, quote, lambda text: quote(text, safe=""), lambda text: json.dumps(text)[1:-1]])
@pytest.mark.parametrize("name", ["DB_PASSWORD", "PGPASSWORD", "OPENAI_KEY", "HF_TOKEN", "HIDDEN_HERE"])
def test_the_value_of_a_secret_variable_is_masked(
    monkeypatch: pytest.MonkeyPatch, name: str, form: Callable[[str], str]
) -> None:
    hide_variable("HIDDEN_HERE")
    monkeypatch.setenv(name, SECRET)
    assert error_message(ValueError(f"no: {form(SECRET)}!")) == "no: ***!"


def test_a_variable_that_a_job_uses_is_masked_unless_it_is_a_word_or_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"ROOT_A": "/data/in", "WORD_A": "photos", "URL_A": "https://h/?t=abc", "HOOK_A": "abcdef0123456789abcd"}
    values |= {"SETTINGS_A": "user=me;key<1"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
        expand(f"${{{name}}}/x")
    shown = masked(" ".join(values.values()))
    assert shown == "/data/in photos https://h/?t=*** *** ***"


def test_the_password_of_a_database_is_masked_whatever_its_variable_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_LOGIN", "hunter2")
    expanded("postgresql://me:${DATABASE_LOGIN}@host/db")
    assert masked("FATAL: hunter2 is wrong") == "FATAL: *** is wrong"


def test_short_values_and_names_of_files_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOME_TOKEN", "false")
    monkeypatch.setenv("GOOGLE_CREDENTIALS", str(tmp_path / "gone.json"))
    assert masked(f"false {tmp_path}") == f"false {tmp_path}"


def test_settings_do_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "reviews")
    assert masked_in({"name": "reviews"}) == {"name": "reviews"}


def test_marks_that_turn_text_round_are_in_sight() -> None:
    assert printable("a\u202egnp.exe\u2066") == "a\\u202egnp.exe\\u2066"


@pytest.mark.parametrize(
    "text", ["a", "a://", "a:", "a://b:", "token", "'api_key': '", "a_", "bearer ", "x.key=", "://@"]
)
def test_a_long_text_is_masked_in_linear_time(text: str) -> None:
    def seconds(length: int) -> float:
        began = time.process_time()
        masked(text * (length // len(text)))
        return time.process_time() - began

    assert seconds(400_000) < 40 * max(seconds(40_000), 0.001)  # 100 times, if it were quadratic
