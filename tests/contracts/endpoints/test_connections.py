"""The way to an endpoint: proxies, headers, secrets, and how long a preview waits."""

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import AccessDenied, ContractError, JobError, ServiceUnavailable
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.infer.trial import require_inputs
from tests.contracts.endpoints.suite import CHILDREN, ENDPOINTS, Adapter, ask, batch_of
from tests.tasks.blocks import source_block
from tests.tasks.infer.chat_server import ChatServer, RequestLimit, refusal, server_of
from tests.tasks.infer.retrieval_server import RetrievalServer

NOTHING_BETWEEN = "its worker starts the server on the loopback address, and nothing stands between"
OWN_SERVER = dict.fromkeys(CHILDREN, NOTHING_BETWEEN)
LOOPBACK = ["LOCALHOST", "localhost.", "a.localhost", "127.0.0.1", "127.1", "127.0.0.53", "0.0.0.0", "[::1]"]


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """A proxy that answers by itself, in the environment."""
    with server_of(RetrievalServer()) as state:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", state.url.removesuffix("/v1"))
        monkeypatch.setenv("all_proxy", state.url.removesuffix("/v1"))
        yield state


@pytest.mark.parametrize("host", [*LOOPBACK, "[::ffff:127.0.0.1]"])
@ENDPOINTS.promise("this machine's own addresses are never asked through a proxy")
def test_loopback(leaf: Adapter, host: str, server: ChatServer, proxy: ChatServer) -> None:
    server.url = server.url.replace("127.0.0.1", host)
    with contextlib.suppress(ServiceUnavailable):  # of addresses on which this server does not listen
        ask(leaf, server, ["a"], retry_timeout_seconds=0.1)
        assert server.requests() == {"a": 1}
    assert not proxy.seen


@ENDPOINTS.promise("another host is asked through the proxy of the environment, unless NO_PROXY names it", **OWN_SERVER)
def test_proxy(leaf: Adapter, proxy: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("http://gateway.test/v1", "http://192.0.2.7/v1"):
        assert not ask(leaf, ChatServer(url=url), ["a"]).failed
    assert len(proxy.seen) == 2
    monkeypatch.setenv("no_proxy", "10.0.0.0/8, 192.0.2.0/24, .test")
    for url in ("http://gateway.test/v1", "http://192.0.2.7/v1"):
        with pytest.raises(ServiceUnavailable):
            ask(leaf, ChatServer(url=url), ["a"], retry_timeout_seconds=0.1, timeout_seconds=0.2)
    assert len(proxy.seen) == 2


@ENDPOINTS.promise("a proxy that does not answer is named", **OWN_SERVER)
def test_dead_proxy(leaf: Adapter, proxy: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:canary-1@127.0.0.1:9")
    with pytest.raises(ServiceUnavailable) as caught:
        ask(leaf, ChatServer(url="http://gateway.test/v1"), ["a"], retry_timeout_seconds=0.1)
    assert "127.0.0.1:9" in str(caught.value)
    assert "NO_PROXY" in str(caught.value)
    assert "canary-1" not in str(caught.value)
    monkeypatch.setenv("http_proxy", "nonsense://")
    with pytest.raises(JobError):
        ask(leaf, ChatServer(url="http://gateway.test/v1"), ["a"])


@ENDPOINTS.promise("headers that a gateway needs are sent, and their values are shown nowhere", **OWN_SERVER)
def test_headers(
    leaf: Adapter, server: ChatServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GATEWAY_KEY", " canary-12345\n")
    monkeypatch.setenv("OTHER_KEY", "canary-67890")
    headers = {"api-key": "${GATEWAY_KEY}", "X-Auth": "Basic ${OTHER_KEY}"}
    assert not ask(leaf, server, ["a"], headers=headers).failed
    [sent] = server.headers
    assert (sent["api-key"], sent["X-Auth"]) == ("canary-12345", "Basic canary-67890")
    model = leaf.make(server.url, **leaf.reads("{text}"), headers=headers)
    assert model.content_settings() == leaf.make(server.url, **leaf.reads("{text}")).content_settings()
    server.always["odd"] = refusal(400, "what is canary-12345 or canary-67890?")
    caplog.set_level(0)
    done = ask(leaf, server, ["odd"], headers=headers)
    assert "what is *** or ***?" in str(done.failed[0])
    server.down = refusal(403, "the key canary-12345 is not allowed")
    with pytest.raises(AccessDenied) as caught:
        ask(leaf, server, ["b"], headers=headers)
    assert "canary" not in str(caught.value) + caplog.text + model.model_dump_json()
    monkeypatch.delenv("GATEWAY_KEY")
    with pytest.raises(JobError, match="GATEWAY_KEY"):
        ask(leaf, server, ["a"], headers=headers)
    monkeypatch.setenv("GATEWAY_KEY", "a\nb")
    with pytest.raises(JobError, match="api-key"):
        ask(leaf, server, ["a"], headers=headers)


@pytest.mark.parametrize(
    "settings",
    [
        {"headers": {"api-key": "a secret in the job file"}},
        {"headers": {"bad name": "${A}"}},
        {"headers": {"Content-Type": "${A}"}},
        {"headers": {"x-a": "${A}", "X-A": "${A}"}},
        {"headers": {"Authorization": "${A}"}, "api_key_env": "A"},
        {"base_url": "https://me:secret@host/v1"},
        {"base_url": "ftp://host"},
        {"api_key_env": "sk-123"},
        {"extra_body": {"stream": True}},
        {"extra_body": {"n": 2}, "num_return_sequences": 2, "temperature": 1},
    ],
)
def test_settings_that_hold_a_secret_or_contradict_are_refused(settings: dict) -> None:
    with pytest.raises(ValidationError):
        OpenAI(**{"model": "m", "user": "{text}"} | settings)


@ENDPOINTS.promise("a preview says at once what it waits for, and gives up within seconds")
def test_preview(leaf: Adapter, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    model = leaf.make(url, **leaf.reads("{text}")).for_preview()
    started = time.monotonic()
    with pytest.raises(ServiceUnavailable):
        leaf.load(model, url, None)(batch_of(["a", "b"]))
    assert time.monotonic() < started + 10
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert warning.created < caplog.records[-1].created or len(caplog.records) == 1
    assert "ConnectError" in warning.getMessage()


LIMITS = {
    "a window": RequestLimit(8, 0.6),
    "a bucket": RequestLimit(8, 0.6, refills=True),
    "a bucket of Anthropic": RequestLimit(8, 0.6, refills=True, is_anthropics=True),
}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@ENDPOINTS.promise("an automatic limit keeps to what the answers' headers allow", **OWN_SERVER)
def test_automatic_limit(leaf: Adapter, limit: RequestLimit, server: ChatServer) -> None:
    server.limit = replace(limit, last_time=-1e9)
    texts = [f"text {row}" for row in range(24)]
    assert not ask(leaf, server, texts, requests_per_minute="auto", max_tries=99).failed
    assert server.limit.refused <= 5, "without a pace, about 14 are refused"


BYTES = [
    *(pa.binary(), pa.large_binary(), pa.binary(1), pa.binary_view(), pa.list_(pa.binary())),
    *(pa.struct([("a", pa.struct([("b", pa.binary())]))]), pa.dictionary(pa.int8(), pa.binary())),
]


@pytest.mark.parametrize("kind", BYTES, ids=str)
@ENDPOINTS.promise("bytes in a prompt are refused by their type, before the first request")
def test_bytes(leaf: Adapter, kind: pa.DataType, server: ChatServer) -> None:
    model = leaf.make(server.url, **leaf.reads("{text} {n}"))
    rows = pa.table({"row_id": ["a"], "text": ["b"], "n": pa.nulls(1, kind), "documents": [["a"]]})
    with pytest.raises(ContractError, match=r"n: .* bytes"):
        require_inputs(Link(model), source_block(0, 0, rows))
    with pytest.raises(ContractError):
        model.given("n", rows["n"])
