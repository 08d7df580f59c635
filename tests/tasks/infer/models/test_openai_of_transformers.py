"""`kind: openai` with transformers' own server, beside `kind: chat`, which loads the same weights."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.infer.models.chat import Chat
from overnight.tasks.infer.models.openai import OpenAI
from tests.contracts.endpoints.suite import batch_of
from tests.tasks.infer.chat_models import chat_model, some_words
from tests.tasks.infer.transformers_server import transformers_server

TEXTS = some_words(12)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    with transformers_server(model) as address:
        yield address


def answers(chat: Any) -> dict[str, Any]:
    found = chat.load()(batch_of(TEXTS))
    assert not found.failed
    return {name: values.to_pylist() for name, values in found.columns.items()}


@pytest.mark.parametrize("settings", [{"max_new_tokens": 12}, {"max_new_tokens": 3, "system": "the cat"}])
def test_each_row_has_the_answer_of_the_same_model_in_a_worker(model: Path, url: str, settings: dict[str, Any]) -> None:
    messages = {"user": "{text}", "model": str(model)} | settings
    near = answers(Chat(**messages))
    far = answers(OpenAI(**messages, base_url=url, max_concurrent_requests=2))
    assert len(set(far["generated_text"])) > 6, "these rows differ"
    reasons = zip(near.pop("finish_reason"), far.pop("finish_reason"), near["completion_tokens"], strict=True)
    assert far == near
    # The server also says length of an answer whose end token is the last token that it may have.
    assert all(there == here for here, there, tokens in reasons if tokens < settings["max_new_tokens"])


def test_a_setting_that_the_server_passes_over_fails_its_rows_with_the_reason(model: Path, url: str) -> None:
    drawn = {"temperature": 0.5, "num_return_sequences": 2, "max_new_tokens": 2}
    found = OpenAI(model=str(model), user="{text}", base_url=url, **drawn).load()(batch_of(TEXTS[:3]))
    assert len(found.failed) == 3
    assert "expected 2 texts, found 1: the endpoint returns fewer than the request requires" in str(found.failed[0])
