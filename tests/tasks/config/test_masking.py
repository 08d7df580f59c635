"""No URL that is shown, logged or stored holds what may be secret in it."""

import dataclasses
import hashlib
import json
import pickle
from typing import Any

import pytest

from overnight.flows.doctor.examine import Finding
from overnight.flows.job.loading import job_schema
from overnight.flows.runs.attempt import describe_failure
from overnight.flows.runs.run import fingerprint_of
from overnight.tasks.config.masking import filled_in, masked, masked_in, printable, secrets_in, without_secrets
from overnight.tasks.errors import InputError, JobError, RowError, StageFailed, explain
from overnight.tasks.rows.error_text import error_message
from overnight.tasks.storage.location import Location
from overnight.tasks.write.sinks.sql import SqlSink
from tests.tasks.runs import make_run


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://h/v1?key=canary", "https://h/v1?key=***"),
        ("(https://h?key=canary): no", "(https://h?key=***): no"),
        ("https://me:canary@h:8080/v1?a=canary&b=&c=x#top: no", "https://***:***@h:8080/v1?a=***&b=&c=***#top: no"),
        ("'https://canary@h' and \"s3://id:canary@b/k\"", "'https://***@h' and \"s3://***:***@b/k\""),
        ("https://h?sig=ca/na+ry%3D", "https://h?sig=***"),
        ("pg+x://${USER}:${PASSWORD}@h/db?mode=${MODE}", "pg+x://${USER}:${PASSWORD}@h/db?mode=${MODE}"),
        ("postgresql://me:${PASSWORD}@h/db", "postgresql://***:${PASSWORD}@h/db"),
        ("redis://:canary@h", "redis://:***@h"),
        ("https://h/?canary", "https://h/?canary"),
        ("oracle+oracledb://canary/canary@h:1521/db", "oracle+oracledb://***/***@h:1521/db"),
        ("oracle://u/${PASSWORD}@h and oracle://h/db", "oracle://***/${PASSWORD}@h and oracle://h/db"),
        ("abfs://container@account.dfs.core.windows.net/x", "abfs://container@account.dfs.core.windows.net/x"),
        ("hf://datasets/me/things@main/x", "hf://datasets/me/things@main/x"),
        ("s3://bucket/date={partition}/a#3: found 2?", "s3://bucket/date={partition}/a#3: found 2?"),
        ("/a/b?c=d and e@f", "/a/b?c=d and e@f"),
    ],
)  # fmt: skip
def test_user_info_and_query_values_are_hidden_and_the_rest_stays(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert masked(shown) == shown


SECRETS = ["api_key", "openai_api_key", "apiKey", "hf_token", "s3.secret-access-key", "s3.access-key-id", "passwd"]


@pytest.mark.parametrize("name", SECRETS)
def test_settings_named_like_secrets_are_masked_and_those_that_name_a_variable_stay(name: str) -> None:
    found = masked_in({"kwargs": [{name: "canary"}], "b": {"c": ("s3://u:canary@b", 1)}})
    assert found == {"kwargs": [{name: "***"}], "b": {"c": ("s3://***:***@b", 1)}}
    for value in ("${CANARY}", "Bearer ${CANARY}", "", None, True, {"of": "model"}):
        assert masked_in({name: value}) == {name: value}


OPEN = [
    *("https://h/v1?version=3&name=x", "postgresql://me:${PASSWORD}@h/db?sslmode=require", "sftp://me@h/in"),
    *("s3://bucket/date={partition}/a#3", "abfs://container@account/x", "max_new_tokens=3", "oracle://h/db"),
]
CLOSED = [
    *("https://h/v1?api_key={}", "https://me:{}@h/v1", "https://h?X-Amz-Signature={}", "Authorization: Bearer {}"),
    *("https://{}@github.com/a/b", "postgresql://h/db?password={}", "AccountKey={};", "hf_{}"),
]


@pytest.mark.parametrize("text", OPEN)
def test_a_setting_without_secrets_decides_the_fingerprint_as_it_always_did(text: str) -> None:
    settings = {"kwargs": {"url": text, "of": [1, None, {"tokenizer": "t"}], "token": "${TOKEN}"}}
    assert without_secrets(settings) == settings
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    assert fingerprint_of(settings) == digest[:16]


@pytest.mark.parametrize("text", CLOSED)
def test_a_fingerprint_is_the_same_for_each_word_that_may_be_the_secret(text: str) -> None:
    words = ["Xcanary1234567890abcd", "Yhorse1234567890abcde"]
    assert len({fingerprint_of({"kwargs": {"a": text.format(word)}}) for word in words}) == 1
    assert len({fingerprint_of({"kwargs": [{"api_key": word}]}) for word in words}) == 1
    assert len({fingerprint_of({"kwargs": {"a": f"https://h/{word}?a={word}"}}) for word in words}) == 2


def test_secrets_that_are_written_out_are_named_by_their_keys() -> None:
    settings = {"model": "m", "headers": {"token": "canary", "key": "${KEY}"}, "urls": ["https://h", "https://h?k=x"]}
    assert list(secrets_in("inference", settings)) == ["inference.headers.token", "inference.urls.1"]


def test_no_setting_of_a_job_is_named_like_a_secret() -> None:
    names = {name for definition in job_schema()["$defs"].values() for name in definition.get("properties", {})}
    assert {"key", "api_key_env", "max_new_tokens", "tokenizer"} <= names
    settings = dict.fromkeys((names | {"pad_token", "keys"}) - {"password"}, "x")  # it may only be ${NAME}
    assert masked_in(settings) == settings


URL = "https://canary:canary@host/v1?key=canary"


def told() -> list[Any]:
    """Everything by which a URL may reach a person, a log or a file."""
    error = JobError(f"{URL} does not answer")
    sink = SqlSink(url="sqlite:////var/out.db?vfs=canary", table="t")
    return [
        error,
        pickle.loads(pickle.dumps(StageFailed(f"{URL}: no", "infer", "ValueError"))),
        explain(ValueError(f"{URL}: no"), "infer"),
        describe_failure("job", "all", error),
        error_message(RowError(f"{URL}: no")),
        error_message(ValueError(f"{URL}: no")),
        Location("s3://canary:canary@bucket/x"),
        sink.shown(make_run("/out")),
        dataclasses.asdict(Finding("server", "wrong", f"{URL} does not answer", f"see {URL}")),
    ]


def test_no_message_holds_a_secret_of_a_url_and_a_place_is_opened_with_it() -> None:
    for shown in map(str, told()):
        assert "canary" not in shown
        assert "***" in shown
    assert (Location("s3://id:canary@bucket") / "a").uri == "s3://id:canary@bucket/a"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b]0;title\x07b", "a\\x1b]0;title\\x07b"),
        ("over\rwritten\x08 \x9b2J\x7f", "over\\x0dwritten\\x08 \\x9b2J\\x7f"),
        ("lines\r\nand\ttabs, üñ 字\n", "lines\r\nand\ttabs, üñ 字\n"),
    ],
)
def test_control_characters_are_in_sight_in_every_message_and_reason(text: str, shown: str) -> None:
    assert printable(text) == printable(printable(text)) == shown
    assert str(InputError(text)) == error_message(ValueError(text)) == shown


def test_a_place_is_filled_in_for_a_reader_unless_a_variable_may_hold_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"OUT_ROOT": "/data/out", "API_TOKEN": "abc", "DATABASE": "postgresql://user:word@host/db"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert filled_in("${OUT_ROOT}/date=2026-11-25") == "/data/out/date=2026-11-25"
    for text in ("/in/${API_TOKEN}", "${DATABASE} table", "${NOT_SET}/x"):
        assert filled_in(text) == text


@pytest.mark.parametrize("name", ["OPENLINEAGE__TRANSPORT__AUTH__APIKEY", "TEAM_API_KEY"])
def test_the_value_of_a_variable_for_a_key_is_hidden(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "canary-of-a-key")
    assert masked("refused canary-of-a-key") == "refused ***"
