"""The test servers beside the official client of OpenAI, which sends and reads as applications do."""

from typing import Any

import numpy as np
import pytest

from overnight.tasks.infer.models.endpoint_embedding import EndpointEmbedding
from tests.tasks.infer.chat_server import refusal, server_of
from tests.tasks.infer.retrieval_server import RetrievalServer, vector_of

openai = pytest.importorskip("openai", reason="the official client of OpenAI is not installed")
TEXTS = ["one text", "another text"]


def test_the_official_client_reads_the_server_and_sends_the_request_of_the_kind() -> None:
    with server_of(RetrievalServer()) as server:
        client = openai.OpenAI(base_url=server.url, api_key="key", max_retries=0)
        for settings in ({}, {"dimensions": 4}):
            answer = client.embeddings.create(model="small", input=TEXTS, **settings)
            for text, item in zip(TEXTS, answer.data, strict=True):
                np.testing.assert_array_equal(
                    np.float32(item.embedding), vector_of(text, settings.get("dimensions", 8))
                )
            assert answer.usage.prompt_tokens == 8
            model = EndpointEmbedding(model="small", base_url=server.url, text_column="text", **settings)
            batch: Any = {"text": np.array(TEXTS, object), "row_id": np.array(["a", "b"], object)}
            model.load()(batch)
            of_client, of_kind = server.bodies[-2:]
            assert of_client == of_kind
        chat = client.chat.completions.create(model="small", messages=[{"role": "user", "content": "hello"}])
        assert chat.choices[0].message.content == "olleh|olleh"
        server.down = refusal(400, "the text is odd")
        with pytest.raises(openai.BadRequestError, match="the text is odd"):
            client.embeddings.create(model="small", input="x")
