"""Each dialect does what the interface of a provider promises."""

import itertools
import json
from collections.abc import Iterator

import pytest

from overnight.tasks.infer.batch.provider import Phase, Provider
from overnight.tasks.infer.batch.sealing import provider_of
from overnight.tasks.infer.endpoint.faults import Fault
from tests.tasks.infer.batch.client import bodies, model_of
from tests.tasks.infer.batch_forms import FORMS
from tests.tasks.infer.batch_server import BatchServer, batch_server


@pytest.fixture(params=FORMS)
def server(request: pytest.FixtureRequest) -> Iterator[BatchServer]:
    with batch_server(request.param) as server:
        yield server


def provider_at(server: BatchServer) -> Provider:
    model = model_of(server.url, dialect=server.dialect)
    assert model.batch
    return provider_of(model, model.batch)


def test_a_batch_is_made_found_looked_at_read_and_cancelled(server: BatchServer) -> None:
    provider = provider_at(server)
    body = json.dumps(bodies(server.dialect)[0])
    content = b"".join(provider.line(str(number), body) for number in range(3))
    file = provider.upload("a.jsonl", content)
    has_labels = server.dialect != "anthropic"
    if has_labels:  # and files
        assert (provider.find_file("a.jsonl"), provider.find_file("b.jsonl")) == (file, None)
    batch = provider.create(file, "label", lambda: content)
    [listed] = provider.batches(since=server.now() - 60)
    assert (listed.id, listed.phase) == (batch.id, Phase.OPEN)
    assert (listed.label, listed.file, listed.rows) == (("label", file, None) if has_labels else (None, "", 3))
    assert server.dialect == "mistral" or list(provider.batches(since=server.now() + 60)) == []
    server.advance(server.seconds)
    ended = provider.look(batch.id)
    assert (ended.phase, ended.completed) == (Phase.ENDED, 3)
    assert ended.state in ("completed", "success", "ended", "succeeded")
    [answers] = ended.results
    found = {result.key: result.status for result in provider.results(answers) if result}
    assert found == {"0": 200, "1": 200, "2": 200}
    other = provider.create(file, "other", lambda: content)
    provider.cancel(other.id)
    server.advance(60)
    assert provider.look(other.id).state == "cancelled"


def test_more_batches_than_a_page_has_are_listed_and_a_page_that_comes_again_ends_the_list(server: BatchServer) -> None:
    provider = provider_at(server)
    content = provider.line("0", json.dumps(bodies(server.dialect)[0]))
    file = provider.upload("a.jsonl", content)
    ids = [provider.create(file, "label", lambda: content).id for _ in range(101)]
    assert [batch.id for batch in provider.batches(0)] == ids[::-1]
    server.ignored = ("after", "after_id", "page", "pageToken")
    with pytest.raises(Fault, match="expected another page, found the same again") as raised:
        list(itertools.islice(provider.batches(0), 1000))
    assert not raised.value.passes
