"""What becomes of the vectors in an answer, of several texts in a request, and of a text that a server cuts."""

import base64
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overnight.tasks.errors import JobError, RowError
from overnight.tasks.storage.location import Location
from tests.contracts.endpoints.suite import ADAPTERS, ask
from tests.tasks.infer.chat_server import Reply, refusal
from tests.tasks.infer.retrieval_server import RetrievalServer, base64_of, tokens_of, vector_of

LEAF = ADAPTERS["endpoint_embedding"]
TEXTS = [f"text number {number}{' and more' * (number % 3)}" for number in range(20)]


def embed(server: RetrievalServer, texts: list[Any], journal: Location | None = None, **settings: Any) -> Any:
    return ask(LEAF, server, texts, journal, **{"inputs_per_request": 8} | settings)


def assert_vectors(done: Any, texts: list[str], size: int = 8) -> None:
    assert not done.failed
    for text, vector in zip(texts, done.columns["embedding"], strict=True):
        assert vector.dtype == np.float32
        np.testing.assert_array_equal(vector, vector_of(text, size))


def data_of(answer: Any, change: Any) -> Any:
    return answer | {"data": change(answer["data"])}


@pytest.mark.parametrize("settings", [{}, {"encoding": "float"}, {"api": "tei"}, {"dimensions": 3}], ids=str)
def test_texts_share_requests_and_each_row_gets_its_vector(server: RetrievalServer, settings: dict[str, Any]) -> None:
    done = embed(server, TEXTS, **settings)
    assert_vectors(done, TEXTS, settings.get("dimensions", 8))
    assert sorted(len(server.asked(body)) for body in server.bodies) == [4, 8, 8]
    wanted = None if "encoding" in settings or "api" in settings else "base64"
    assert {body.get("encoding_format") for body in server.bodies} == {wanted}
    if "api" in settings:
        assert all(body["truncate"] is False and "model" not in body for body in server.bodies)
        assert done.columns["prompt_tokens"].null_count == len(TEXTS), "its route has no usage"
    else:
        assert sum(done.columns["prompt_tokens"].to_pylist()) == sum(map(tokens_of, TEXTS))


def test_each_row_has_its_cost_by_the_input_price_alone(server: RetrievalServer) -> None:
    done = embed(server, ["a", "b c"], price_per_million_input_tokens=2.0, inputs_per_request=1)
    assert done.columns["cost"].to_pylist() == pytest.approx([3 * 2e-6, 4 * 2e-6])


def shuffled(data: list[Any]) -> list[Any]:
    return random.Random(0).sample(data, len(data))


def as_lists(data: list[Any]) -> list[Any]:
    return [item | {"embedding": np.frombuffer(base64.b64decode(item["embedding"]), "<f4").tolist()} for item in data]


def without_index(data: list[Any]) -> list[Any]:
    return [{"embedding": item["embedding"]} for item in data]


@pytest.mark.parametrize("change", [shuffled, as_lists, without_index], ids=lambda change: change.__name__)
def test_any_order_and_either_form_of_an_answer_is_right(server: RetrievalServer, change: Any) -> None:
    server.changed = lambda answer: data_of(answer, change)
    assert_vectors(embed(server, TEXTS), TEXTS)
    assert len(server.bodies) == 3


def all_zero(data: list[Any]) -> list[Any]:
    return [item | {"index": 0} for item in data]


ODD = {
    "one too few": lambda data: data[1:] if len(data) > 1 else data,
    "one too few, without index": lambda data: without_index(data[1:] if len(data) > 1 else data),
    "one too many": lambda data: [*data, data[0]] if len(data) > 1 else data,
    "all at index 0": all_zero,
    "an index beyond": lambda data: [item | {"index": item["index"] + 1} for item in data],
    "an index of text": lambda data: [item | {"index": str(item["index"])} for item in data],
    "one null": lambda data: [data[0] | {"embedding": None}, *data[1:]] if len(data) > 1 else data,
}


@pytest.mark.parametrize("change", ODD.values(), ids=list(ODD))
def test_a_vector_that_is_not_certain_is_requested_again_and_never_guessed(
    server: RetrievalServer, change: Any, tmp_path: Path
) -> None:
    server.changed = lambda answer: data_of(answer, change)
    for _ in range(2):
        assert_vectors(embed(server, TEXTS[:6], Location(str(tmp_path))), TEXTS[:6])
        assert 2 <= len(server.bodies) <= 11


SINGLE = {
    "no vector": (lambda data: [], "found 0"),
    "two vectors": (lambda data: data * 2, "found 2"),
    "NaN": (lambda data: [{"embedding": base64_of(np.full(8, np.nan)), "index": 0}], "NaN or infinity"),
    "NaN in a list": (lambda data: [{"embedding": [1.0, float("nan")], "index": 0}], "NaN or infinity"),
    "beyond float32": (lambda data: [{"embedding": [1.0, 1e39], "index": 0}], "NaN or infinity"),
    "null": (lambda data: [{"embedding": None, "index": 0}], "found 'None'"),
    "a vector for each token": (lambda data: [{"embedding": [[1.0], [2.0]], "index": 0}], "[[1.0]"),
    "not base64": (lambda data: [{"embedding": "?", "index": 0}], "found '?'"),
    "a part of a number": (lambda data: [{"embedding": "AAAA", "index": 0}], "found 'AAAA'"),
    "empty": (lambda data: [{"embedding": [], "index": 0}], "found '[]'"),
    "an object": (lambda data: [{"embedding": {"sparse": 1}, "index": 0}], "sparse"),
}


@pytest.mark.parametrize(("change", "words"), SINGLE.values(), ids=list(SINGLE))
def test_an_answer_without_a_usable_vector_fails_its_row_and_is_paid_once(
    server: RetrievalServer, change: Any, words: str, tmp_path: Path
) -> None:
    server.changed = lambda answer: data_of(answer, change)
    for _ in range(2):
        done = embed(server, ["a text"], Location(str(tmp_path)))
        assert isinstance(done.failed[0], RowError)
        assert words in str(done.failed[0])
        assert "4 prompt tokens" in str(done.failed[0])
        assert len(server.bodies) == 1


def test_vectors_of_another_length_end_the_run(server: RetrievalServer, tmp_path: Path) -> None:
    journal = Location(str(tmp_path))
    embed(server, ["a"], journal)
    server.size = 4
    with pytest.raises(JobError, match=r"vectors of 8 numbers \(the first answers of this run\), found one of 4"):
        embed(server, ["b"], journal)
    server.changed = lambda answer: data_of(answer, lambda data: [data[0] | {"embedding": [1.0]}])
    with pytest.raises(JobError, match=r"vectors of 3 numbers \(dimensions: 3\), found one of 1"):
        embed(server, ["c"], dimensions=3)


@pytest.mark.parametrize("fault", [refusal(400, "the text is odd"), Reply(500, b"broken")], ids=["400", "500"])
def test_a_bad_text_costs_its_row_alone(server: RetrievalServer, fault: Reply, tmp_path: Path) -> None:
    server.always["odd"] = fault
    texts = [*TEXTS[:5], "odd", *TEXTS[5:]]
    for tries in (1, 2):
        done = embed(server, texts, Location(str(tmp_path)), inputs_per_request=32)
        assert list(done.failed) == [5]
        assert "odd" in str(done.failed[5]) or "broken" in str(done.failed[5])
        for text, vector in zip(texts, done.columns["embedding"], strict=True):
            assert text == "odd" or (vector == vector_of(text)).all()
        answered = server.answered.copy()
        while "Hi" in answered:
            answered.remove("Hi")
        assert sorted(answered) == sorted(TEXTS), f"no text is paid twice, in run {tries}"


def test_a_row_without_a_text_fails_alone_and_without_a_request(server: RetrievalServer) -> None:
    done = embed(server, ["a", None, 3, "b"], prompt=None)
    assert {row: str(error) for row, error in done.failed.items()} == {
        1: "text: expected a text, found no value.",
        2: "text: expected a text, found int 3.",
    }
    assert [server.asked(body) for body in server.bodies] == [["a", "b"]]


def test_more_texts_than_a_server_takes_are_sent_in_halves(server: RetrievalServer) -> None:
    server.most_texts = 5
    assert_vectors(embed(server, TEXTS, api="tei", inputs_per_request=32), TEXTS)
    assert len(server.answered) == len(TEXTS)


def test_a_kill_between_two_sizes_of_requests_pays_no_text_twice(server: RetrievalServer, tmp_path: Path) -> None:
    journal = Location(str(tmp_path))
    embed(server, TEXTS[:7], journal, inputs_per_request=3)
    assert_vectors(embed(server, TEXTS, journal, inputs_per_request=16, encoding="float"), TEXTS)
    assert server.requests() == dict.fromkeys(TEXTS, 1)


def test_tei_refuses_a_long_text_instead_of_cutting_it(server: RetrievalServer) -> None:
    server.longest = 6
    done = embed(server, ["short", "one two three four five", "short too"], api="tei")
    assert list(done.failed) == [1]
    assert "must have less than 6 tokens. Given: 7" in str(done.failed[1])


def test_a_text_that_a_server_may_have_cut_is_named(server: RetrievalServer) -> None:
    server.longest = 20
    long, fits = "word " * 30, "a longer word " * 5
    done = embed(server, ["short", long, "brief", fits], max_input_tokens=20)
    assert list(done.failed) == [1]
    assert "fewer than 20 tokens (max_input_tokens), found 20" in str(done.failed[1])
    assert sorted(len(server.asked(body)) for body in server.bodies) == [1, 1, 1, 1], "the order of rows stays"
    assert not embed(server, ["short", "brief"], max_input_tokens=20).failed


def test_the_fields_of_extra_body_are_sent_and_null_removes_one(server: RetrievalServer) -> None:
    embed(server, ["a"], api="tei", extra_body={"normalize": False, "truncate": None})
    assert server.bodies[0] == {"inputs": ["a"], "normalize": False}
