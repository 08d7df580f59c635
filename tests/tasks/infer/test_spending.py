"""What the journals of a generation have cost, with the prices of today."""

from dataclasses import asdict
from pathlib import Path

import pytest

from overnight.tasks.infer.models.endpoint_embedding import EndpointEmbedding
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.infer.retrieval.embeddings import Embeddings
from overnight.tasks.infer.retrieval.rankings import Ranking
from overnight.tasks.infer.spending import read_paid
from overnight.tasks.storage.location import Location
from overnight.tasks.workers.spending import Amount, Paid
from tests.contracts.endpoints.suite import batch_of
from tests.tasks.infer.chat_server import ChatServer, completion


def test_a_journal_shows_what_all_its_answers_cost_failed_and_uncounted_ones_too(
    server: ChatServer, tmp_path: Path
) -> None:
    prices = {"price_per_million_input_tokens": 1e6, "price_per_million_output_tokens": 2e6}
    settings = {"base_url": server.url, "model": "small", "user": "{text}", "max_new_tokens": 5, **prices}
    model, journal = OpenAI(**settings), Location(str(tmp_path / "answers"))
    assert read_paid(journal, model) == Paid()
    server.always = {
        "refused": completion(None),
        "uncounted": b'{"choices": [{"message": {"content": "yes"}}]}',
        "odd": (400, "odd", {}),
    }
    model.load_with(journal)(batch_of(["one", "refused", "uncounted", "odd"]))
    with next(Path(str(journal)).iterdir()).open("a") as lines:
        lines.write('{"key": "cut o')
    paid = read_paid(journal, model)
    assert paid.answers == 3
    assert paid.amount.tokens == 8 + 8 + 5
    assert paid.amount.cost == pytest.approx(9 + 9 + 10)


def test_the_answers_of_embeddings_and_rankings_cost_their_prompts_alone() -> None:
    model = EndpointEmbedding(model="small", text_column="text", price_per_million_input_tokens=1e6)
    assert model.paid_for(asdict(Embeddings(["AAAA"], 7))) == Amount(7, 7.0)
    assert model.paid_for(asdict(Ranking([0], [0.5], 9))) == Amount(9, 9.0)
