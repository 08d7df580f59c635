"""Each dialect does what the interface of a provider promises."""

from collections.abc import Iterator

import pytest

from overnight.tasks.infer.batch.connection import Connection
from overnight.tasks.infer.batch.dialects.openai import VARIANTS, OpenAIBatches
from overnight.tasks.infer.batch.provider import Phase, Provider
from tests.tasks.infer.batch_server import BatchServer, batch_server


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with batch_server() as server:
        yield server


@pytest.mark.parametrize("name", VARIANTS)
def test_a_batch_is_made_found_looked_at_read_and_cancelled(name: str, server: BatchServer) -> None:
    server.is_together = name == "together"
    provider: Provider = OpenAIBatches(Connection(server.url, None, {}), VARIANTS[name], "24h")
    lines = [provider.line(str(number), '{"messages": [{"content": "hello"}]}') for number in range(3)]
    file = provider.upload("a.jsonl", b"".join(lines))
    assert (provider.find_file("a.jsonl"), provider.find_file("b.jsonl")) == (file, None)
    batch = provider.create(file, "label")
    [listed] = provider.batches(since=server.now() - 60)
    assert (listed.id, listed.label, listed.file, listed.phase) == (batch.id, "label", file, Phase.OPEN)
    assert list(provider.batches(since=server.now() + 60)) == []
    server.advance(server.seconds)
    ended = provider.look(batch.id)
    assert (ended.phase, ended.state, ended.completed) == (Phase.ENDED, "completed", 3)
    [answers] = ended.results
    found = {result.key: result.status for result in provider.results(answers) if result}
    assert found == {"0": 200, "1": 200, "2": 200}
    other = provider.create(file, "other")
    provider.cancel(other.id)
    server.advance(60)
    assert provider.look(other.id).state == "cancelled"


def test_more_batches_than_a_page_has_are_listed(server: BatchServer) -> None:
    provider = OpenAIBatches(Connection(server.url, None, {}), VARIANTS["openai"], "24h")
    file = provider.upload("a.jsonl", provider.line("0", '{"messages": [{"content": "hello"}]}'))
    ids = [provider.create(file, "label").id for _ in range(101)]
    assert [batch.id for batch in provider.batches(0)] == ids[::-1]
