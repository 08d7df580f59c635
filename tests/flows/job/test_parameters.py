"""What the server refuses to keep of a form: secrets that are written out, and nothing else."""

import re

import pytest

from overnight.flows.job.parameters import NO_SECRET_SETTING, NO_SECRET_URL

URLS = [
    "https://canary:canary@host/v1",
    "postgresql+psycopg://canary@127.0.0.1:9/x",
    "https://host/v1?key=canary",
    "see\nhttps://host/a?b=${B}&sig=canary",
    "https://${USER}:canary@host",
]
PLAIN = [
    "s3://bucket/a=b/",
    "abfs://box@account.dfs.core.windows.net/x",
    "https://${USER}:${PASSWORD}@host/v1?key=${KEY}&more=",
    "me@host, why? a=b",
    "http://127.0.0.1:8000/v1",
]
SECRETS = [
    "inference.0.kwargs.api_key=canary",
    "inference.0.kwargs.OPENAI-API-KEY=canary",
    "sink.password=1234",
    "token=canary",
    "inference.0.kwargs={api_key: canary}",
    "inference.0.kwargs={'a': 1, \"hf_token\": 'canary'}",
]
SETTINGS = [
    "inference.0.batch_size=8",
    "inference.0.max_new_tokens=8",
    "inference.0.api_key_env=NAME",
    "inference.0.kwargs.api_key=${NAME}",
    "inference.0.kwargs.api_key=null",
    "inference.0.kwargs={api_key: '${NAME}', depth: 20}",
    "source.key=id",
    "inference.0.user=give me the token: {text}",
]


@pytest.mark.parametrize(("texts", "is_taken"), [(URLS, False), (PLAIN, True)])
def test_a_url_with_a_secret_is_refused_in_a_reason_and_in_a_setting(texts: list[str], is_taken: bool) -> None:
    for text in texts:
        assert bool(re.search(NO_SECRET_URL, text)) is is_taken, text
        assert bool(re.search(NO_SECRET_SETTING, f"source.path={text}")) is is_taken, text


@pytest.mark.parametrize(("settings", "is_taken"), [(SECRETS, False), (SETTINGS, True)])
def test_a_setting_that_is_named_like_a_secret_is_refused(settings: list[str], is_taken: bool) -> None:
    assert [text for text in settings if bool(re.search(NO_SECRET_SETTING, text)) is not is_taken] == []
