"""Answers that have to fit: what is sent, what a wrong answer costs, and the columns of right ones, for every leaf."""

import json
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import InvalidValues
from overnight.tasks.infer.chat.answer_form import FIELD
from overnight.tasks.infer.chat.repairs import REQUEST
from overnight.tasks.storage.location import Location
from tests.contracts.endpoints.answers import CALL, body, choice
from tests.contracts.endpoints.suite import ENDPOINTS, NO_CHAT, Adapter, ask
from tests.tasks.infer.chat_server import MOOD, ChatServer, Reply, completion, refusal

CHOICES = {"choices": ["good", "bad"]}
FORMS: dict[str, tuple[dict[str, Any], str, str]] = {  # a right and a wrong answer
    "choices": (CHOICES, "good", "very good"),
    "regex": ({"regex": "[0-9]{4}(-[0-9]{2})?"}, "1999", "in 1999"),
    "grammar": ({"grammar": 'start: "yes" | "no"'}, "no", "no!"),
}
FAULTS = {
    "lower letters": "Good",
    "empty": "",
    "an explanation": "good. I hope this helps",
    "another choice": '{"answer": "odd"}',
    "a list": '["good"]',
    "two": "good bad",
}
ODD, GOOD = '{"mood": "odd"}', '{"mood": "good"}'


def column(done: Any, name: str) -> list[Any]:
    return list(done.columns[name].to_pylist())


@pytest.mark.parametrize("name", FORMS)
@ENDPOINTS.promise(
    "an answer without the required form costs its row, with the reason and the tokens, and no other", **NO_CHAT
)
def test_forms(leaf: Adapter, name: str, server: ChatServer) -> None:
    form, right, wrong = FORMS[name]
    server.always = {
        "a": completion(f"\n{right} "),
        "b": completion(wrong),
        "c": completion("<think>x</think>" + right),
    }
    done = ask(leaf, server, ["a", "b", "c"], answer=form)
    assert (column(done, "generated_text")[0], column(done, "generated_text")[2]) == (right, right)
    assert list(done.failed) == [1]
    assert f"found {wrong!r}" in str(done.failed[1])
    assert "It took 7 prompt tokens" in str(done.failed[1])
    assert server.requests() == {"a": 1, "b": 1, "c": 1}
    server.always = {"d": completion("<think>hm", reason="length")}
    done = ask(leaf, server, ["d"], answer=form, reasoning=True)
    assert "found reasoning that does not end. It ends at max_new_tokens. It took 7" in str(done.failed[0])


@ENDPOINTS.promise("each wrong answer to a choice is quarantined, and a choice in a JSON object is a choice", **NO_CHAT)
def test_wrong_choices(leaf: Adapter, server: ChatServer) -> None:
    server.always = {name: completion(text) for name, text in FAULTS.items()}
    server.always["object"] = completion(json.dumps({FIELD: "bad"}))
    done = ask(leaf, server, [*FAULTS, "object"], answer=CHOICES)
    assert list(done.failed) == list(range(len(FAULTS)))
    assert all("expected one of 'good', 'bad'" in str(error) for error in done.failed.values())
    assert column(done, "generated_text")[-1] == "bad"


@ENDPOINTS.promise(
    "an answer that does not fit is shown with its error, once; tokens of both count, and both are kept", **NO_CHAT
)
def test_repairs(leaf: Adapter, server: ChatServer, tmp_path: Path) -> None:
    server.always = {"right": completion(GOOD, prompt=7), "cut": completion('{"mood":', reason="length")}
    server.faults = {"wrong": [completion(ODD, prompt=10)], "twice": [completion(ODD, prompt=10)]}
    texts = ["right", "wrong", "twice", "cut"]
    server.answer = lambda asked: GOOD if asked["messages"][0]["content"] == "wrong" else ODD  # type: ignore[method-assign]
    for _ in range(2):
        done = ask(leaf, server, texts, Location(str(tmp_path)), output_schema=MOOD, repairs=1)
        assert column(done, "structured_output")[:2] == [{"mood": "good"}] * 2
        assert column(done, "prompt_tokens")[:2] == [7, 17]
        assert column(done, "completion_tokens")[:2] == [2, 4]
        assert list(done.failed) == [2, 3]
        assert "'odd' is not one of ['good', 'bad']" in str(done.failed[2])
        assert "It took 17 prompt tokens and 4 completion tokens." in str(done.failed[2])
        assert len(server.bodies) == 6, "four rows, two repairs, and nothing twice"
    repairs = [sent["messages"] for sent in server.bodies if len(sent["messages"]) == 3]
    assert [messages[1] for messages in repairs] == [{"role": "assistant", "content": ODD}] * 2
    error = "answer: expected JSON that fits output_schema, found mood: 'odd' is not one of ['good', 'bad']. "
    expected = REQUEST.format(f"{error}It begins with {ODD!r}.")
    assert [messages[2] for messages in repairs] == [{"role": "user", "content": expected}] * 2


@ENDPOINTS.promise("a repair that the server refuses costs its row, with both reasons", **NO_CHAT)
def test_a_refused_repair(leaf: Adapter, server: ChatServer) -> None:
    server.faults = {"wrong": [completion(ODD)]}
    server.down = refusal(400, "maximum context length is 8 tokens")
    done = ask(leaf, server, ["wrong"], output_schema=MOOD, repairs=1)
    assert "'odd' is not one of" in str(done.failed[0])
    assert "Its repair failed: expected an answer, found HTTP 400" in str(done.failed[0])
    assert "maximum context length" in str(done.failed[0])


def several(*texts: str) -> Reply:
    return body(*(choice({"content": text}, index=number) for number, text in enumerate(texts)))


@ENDPOINTS.promise(
    "of several texts the most frequent one is kept with its share; texts that do not fit are no votes", **NO_CHAT
)
def test_majority(leaf: Adapter, server: ChatServer) -> None:
    settings = {"num_return_sequences": 3, "temperature": 1}
    server.always = {
        "a": several("bad", "good", "good"),
        "b": several("odd", "odd", "bad"),
        "c": several("?", "!", "?"),
    }
    done = ask(leaf, server, ["a", "b", "c"], answer=CHOICES, keep="majority", **settings)
    assert column(done, "generated_text")[:2] == ["good", "bad"]
    assert column(done, "agreement")[:2] == [pytest.approx(2 / 3), pytest.approx(1 / 3)]
    assert "None of 3 texts fits." in str(done.failed[2])
    server.always = {"a": several(ODD, GOOD, '{"mood": "bad"}')}
    done = ask(leaf, server, ["a"], output_schema=MOOD, keep="majority(mood)", **settings)
    assert (column(done, "structured_output"), column(done, "finish_reason")) == ([{"mood": "good"}], ["stop"])
    assert column(done, "agreement") == [pytest.approx(1 / 3)]


@ENDPOINTS.promise("a refusal, and reasoning without an answer, are no votes beside texts that fit", **NO_CHAT)
def test_votes_without_a_text(leaf: Adapter, server: ChatServer) -> None:
    thought = choice({"content": None, "reasoning": "hm"}, "length")
    refusal = choice({"content": None, "refusal": "no"})
    server.always = {"a": body(refusal, thought, thought, choice({"content": "bad"})), "b": body(*[thought] * 4)}
    settings: dict[str, Any] = {"num_return_sequences": 4, "temperature": 1, "keep": "majority"}
    for form in ({"reasoning": True}, {"answer": CHOICES}):
        done = ask(leaf, server, ["a", "b"], **settings, **form)
        assert (column(done, "generated_text")[0], column(done, "agreement")[0]) == ("bad", 0.25)
        assert list(done.failed) == [1]


@ENDPOINTS.promise(
    "of several texts the best by an expression over its fields is kept, with the tokens of all", **NO_CHAT
)
def test_best(leaf: Adapter, server: ChatServer) -> None:
    fields = {"stars": {"type": ["integer", "null"]}, "title": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": ["stars", "title"]}
    answers = [{"stars": 2, "title": "a"}, {"stars": 2, "title": "abc"}, {"stars": None, "title": "abcdef"}]
    server.always = {"a": several(*map(json.dumps, answers)), "b": several(json.dumps(answers[2]), "x", "[]")}
    done = ask(
        leaf, server, ["a", "b"], output_schema=schema, keep="best(stars * 10 + length(title))",
        num_return_sequences=3, temperature=1,
    )  # fmt: skip
    assert column(done, "structured_output")[0] == answers[1]
    assert column(done, "completion_tokens")[0] == 5
    assert "agreement" not in done.columns
    assert "keep: expected a value of 'stars * 10 + length(title)' for one of the texts" in str(done.failed[1])


def scored(*tokens: tuple[str, float], text: str = "good", top: Any = ()) -> Reply:
    content = [{"token": token, "logprob": logprob, "top_logprobs": []} for token, logprob in tokens]
    if content:
        content[0]["top_logprobs"] = [{"token": token, "logprob": logprob} for token, logprob in top]
    return body(choice({"content": text}, logprobs={"content": content} if content else None))


@ENDPOINTS.promise(
    "the mean log probability is a column; an endpoint that returns none is named as the cause", **NO_CHAT
)
def test_logprobs(leaf: Adapter, server: ChatServer) -> None:
    server.always = {"a": scored(("go", -0.5), ("od", -1.5)), "b": scored()}
    done = ask(leaf, server, ["a", "b"], logprobs=True)
    assert column(done, "mean_logprob")[0] == -1.0
    assert isinstance(done.failed[1], InvalidValues)
    assert "Leave out logprobs" in str(done.failed[1])
    server.always = {"call": body(choice({"content": None, "tool_calls": [CALL]}, logprobs=None)), "": scored(text="")}
    done = ask(leaf, server, ["call", ""], logprobs=True, tools=[{}])
    assert (column(done, "mean_logprob"), done.failed) == ([None, None], {})
    assert all(sent["logprobs"] is True and "top_logprobs" not in sent for sent in server.bodies)


@ENDPOINTS.promise("the probabilities of choices are those of the first token, in all its forms", **NO_CHAT)
def test_label_scores(leaf: Adapter, server: ChatServer) -> None:
    # of 0.4 + 0.1 and 0.25; 0.2 is neither
    top = [("good", -0.916291), (" g", -2.302585), ("b", -1.386294), ("maybe", -1.609438), (" ", -9.0)]
    server.always = {"a": scored(("good", -0.916291), top=top), "b": scored(("good", -0.1)), "c": scored()}
    done = ask(leaf, server, ["a", "b", "c"], answer=CHOICES, label_scores=True)
    scores = column(done, "label_scores")
    assert scores[0] == {"good": pytest.approx(2 / 3, abs=1e-5), "bad": pytest.approx(1 / 3, abs=1e-5)}
    assert scores[1] == {"good": 1.0, "bad": 0.0}
    assert isinstance(done.failed[2], InvalidValues)
    assert all(sent["top_logprobs"] == 20 and "response_format" not in sent for sent in server.bodies)


@ENDPOINTS.promise("a call of a tool is a column of JSON beside a text, and costs no row", **NO_CHAT)
def test_tools(leaf: Adapter, server: ChatServer) -> None:
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
    server.always = {
        "call": body(choice({"content": None, "tool_calls": [CALL]}, "tool_calls")),
        "text": completion("hi"),
    }
    done = ask(leaf, server, ["call", "text"], tools=tools)
    assert not done.failed
    assert column(done, "generated_text") == [None, "hi"]
    assert json.loads(column(done, "tool_calls")[0]) == [CALL]
    assert column(done, "tool_calls")[1] is None
    assert all(sent["tools"] == tools for sent in server.bodies)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"answer": {}}, "expected one of choices, regex and grammar, found none"),
        ({"answer": {"choices": ["a"], "regex": "a"}}, "found choices and regex"),
        ({"answer": {"choices": ["a", "a"]}}, "expected different texts"),
        ({"answer": {"choices": [" a"]}}, "without white space around them"),
        ({"answer": {"regex": "a(?=b)"}}, "look-around"),
        ({"answer": {"grammar": "start: word"}}, "unknown name"),
        ({"answer": CHOICES, "output_schema": MOOD}, "Leave one of them out"),
        ({"repairs": 1}, "expected output_schema or answer"),
        ({"repairs": 2, "answer": CHOICES}, "less than or equal to 1"),
        ({"keep": "majority"}, "expected several texts"),
        ({"keep": "most", "num_return_sequences": 2, "temperature": 1}, "expected all, majority,"),
        ({"keep": "best", "num_return_sequences": 2, "temperature": 1}, "expected all, majority,"),
        ({"keep": "majority(x)", "num_return_sequences": 2, "temperature": 1}, "the fields are none"),
        (
            {"keep": "best(star)", "num_return_sequences": 2, "temperature": 1, "output_schema": MOOD},
            "found star; the fields are mood",
        ),
        (
            {"keep": "best(sum(mood))", "num_return_sequences": 2, "temperature": 1, "output_schema": MOOD},
            "several rows",
        ),
        ({"label_scores": True}, "expected answer: {choices"),
        ({"label_scores": True, "answer": {"choices": ["good", "great"]}}, "differ in their first character"),
        ({"label_scores": True, "answer": CHOICES, "reasoning": True}, "expected no reasoning"),
        ({"tools": [{}], "answer": CHOICES}, "expected no output_schema, answer or keep"),
        ({"tools": [{}], "keep": "majority", "num_return_sequences": 2, "temperature": 1}, "expected no output_schema"),
    ],
)
@ENDPOINTS.promise("settings that contradict each other are refused before the first request", **NO_CHAT)
def test_refused_settings(leaf: Adapter, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        leaf.make("http://127.0.0.1:9/v1", user="{text}", **settings)
    assert reason in str(caught.value)
