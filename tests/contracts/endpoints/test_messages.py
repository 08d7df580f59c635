"""What is sent to an endpoint: parts, conversations, settings of rows, and what is asked once."""

import base64
import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from overnight.tasks.infer.chat import media
from overnight.tasks.storage.location import Location
from tests.contracts.endpoints.suite import ENDPOINTS, NO_CHAT, Adapter
from tests.tasks.infer.chat_server import ChatServer, Reply

WAVE = b"RIFF\x00\x00\x00\x00WAVEfmt "
PHOTO = np.full((20, 40, 3), 200, np.uint8)
PARTS = [{"text": "About {product}"}, {"image": "photo"}, {"audio": "clip"}]


def batch(**columns: list[Any]) -> dict[str, Any]:
    """A batch with an object array for each column, and ids of rows."""
    count = len(next(iter(columns.values())))
    arrays = {"row_id": np.array([f"r{row}" for row in range(count)], object)}
    for name, values in columns.items():
        arrays[name] = np.empty(count, object)
        for row, value in enumerate(values):
            arrays[name][row] = value
    return arrays


def ask(
    leaf: Adapter, server: ChatServer, rows: dict[str, Any], journal: Location | None = None, **settings: Any
) -> Any:
    model = leaf.make(server.url, **settings)
    return leaf.load(model, server.url, journal)(rows)


def bodies(server: ChatServer) -> dict[str, Any]:
    """The body of the request for each text."""
    return {text: body for (_, text), body in zip(server.seen, server.bodies, strict=True)}


@ENDPOINTS.promise(
    "a message has its parts in their order, images and sounds in base64; a row without one is not asked", **NO_CHAT
)
def test_parts(leaf: Adapter, server: ChatServer) -> None:
    rows = batch(product=["pan", "pot", "lid"], photo=[PHOTO, PHOTO, b"no image"], clip=[WAVE, None, WAVE])
    done = ask(leaf, server, rows, user=PARTS, system="be brief", max_side=10)
    assert "clip: expected a value" in str(done.failed[1])
    assert "expected the bytes of an image" in str(done.failed[2])
    [body] = server.bodies
    assert body["messages"][0] == {"role": "system", "content": "be brief"}
    text, image, sound = body["messages"][1]["content"]
    assert text == {"type": "text", "text": "About pan"}
    data = base64.b64decode(image["image_url"]["url"].removeprefix("data:image/jpeg;base64,"))
    assert image["type"] == "image_url"
    assert Image.open(io.BytesIO(data)).size == (10, 5)
    assert sound == {"type": "input_audio", "input_audio": {"data": base64.b64encode(WAVE).decode(), "format": "wav"}}


@ENDPOINTS.promise(
    "an image in S3 travels as a signed link, and a later attempt that signs again pays nothing", **NO_CHAT
)
def test_signed_links(leaf: Adapter, server: ChatServer, s3: Any, tmp_path: Path) -> None:
    s3.create_bucket(Bucket="pictures")
    s3.put_object(Bucket="pictures", Key="a.png", Body=b"...")
    rows = batch(uri=["s3://pictures/a.png"])
    settings = {"user": [{"image": "uri"}, {"text": "Which?"}], "image_as": "url"}
    texts = []
    for _ in range(2):
        done = ask(leaf, server, rows, Location(str(tmp_path)), **settings)
        texts.append(done.columns["generated_text"].to_pylist())
        time.sleep(1.1)  # a signature has the second
    assert texts[0] == texts[1] != [None]
    assert media.signed_url("s3://pictures/a.png") != server.bodies[0]["messages"][0]["content"][0]["image_url"]["url"]
    assert len(server.bodies) == 1
    link = server.bodies[0]["messages"][0]["content"][0]["image_url"]["url"]
    assert "X-Amz-Signature=" in link
    assert "X-Amz-Expires=604800" in link


@ENDPOINTS.promise(
    "a conversation of the row is sent with its system message, its calls of tools and its images", **NO_CHAT
)
def test_conversations(leaf: Adapter, server: ChatServer) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [
        {"role": "system", "content": "be brief"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "391", "tool_call_id": "1"},
        {"role": "user", "content": [{"type": "text", "text": "And?"}, {"type": "image", "image": "https://a/b.png"}]},
    ]
    done = ask(leaf, server, batch(chat=[turns, [{"from": "human"}]]), messages="chat", system="not this")
    assert "expected a message with role and content, found the keys from" in str(done.failed[1])
    [body] = server.bodies
    link = {"type": "image_url", "image_url": {"url": "https://a/b.png"}}
    expected = [*turns[:3], {"role": "user", "content": [{"type": "text", "text": "And?"}, link]}]
    assert body["messages"] == expected


@ENDPOINTS.promise(
    "settings of a row are in its request alone; a row without a value has the job's, a wrong value fails", **NO_CHAT
)
def test_settings_of_rows(leaf: Adapter, server: ChatServer) -> None:
    rows = batch(
        text=["own", "none", "hot", "half", "other"],
        t=[0.5, None, -1.0, 0.5, 0.5],
        limit=[7.0, float("nan"), 7, 7.5, 7],
        adapter=["b", None, "b", "b", "c"],
    )
    by_row = {"temperature": "t", "max_new_tokens": "limit", "model": "adapter"}
    done = ask(leaf, server, rows, user="{text}", by_row=by_row, by_row_models=["a", "b"], temperature=0.1)
    reasons = {rows["text"][row]: str(error) for row, error in done.failed.items()}
    assert reasons.keys() == {"hot", "half", "other"}
    assert "t: expected a value for temperature, found -1.0" in reasons["hot"]
    assert "limit: expected a value for max_new_tokens, found 7.5" in reasons["half"]
    assert "adapter: expected one of by_row_models (a, b), found 'c'" in reasons["other"]
    asked = bodies(server)
    own, none = asked["own"], asked["none"]
    assert (own["temperature"], own["max_tokens"], own["model"]) == (0.5, 7, "b")
    assert (none["temperature"], none["max_tokens"]) == (0.1, 256)
    assert none["model"] != "b"


def reasoned(content: Any, reason: str, tokens: int | None, **message: Any) -> Reply:
    details = {"completion_tokens_details": {"reasoning_tokens": tokens}}
    usage = {"prompt_tokens": 3, "completion_tokens": 9, **details}
    choice = {"index": 0, "message": {"content": content, **message}, "finish_reason": reason}
    return Reply(200, {"choices": [choice], "usage": usage})


REASONED = {
    "whole": reasoned("391", "stop", 5, reasoning="17 * 23 is"),
    "hidden": reasoned("391", "stop", 5),
    "empty": reasoned("", "stop", 0),
    "cut": reasoned("", "length", 9),
    "cut, null": reasoned(None, "length", 9, reasoning="17 * 2"),
    "cut answer": reasoned("39", "length", 5),
    "not counted": reasoned("391", "stop", None),
}


@pytest.mark.parametrize("keep", [True, False])
@ENDPOINTS.promise(
    "reasoning and its tokens have columns; an answer cut off within its reasoning is not an empty one", **NO_CHAT
)
def test_reasoning(leaf: Adapter, server: ChatServer, keep: bool, tmp_path: Path) -> None:
    server.always = dict(REASONED)
    rows, reasoning = batch(text=list(REASONED)), {"effort": "low", "keep": keep}
    for _ in range(2):  # from the server, and from the journal
        done = ask(leaf, server, rows, Location(str(tmp_path)), user="{text}", reasoning=reasoning)
        texts = dict(zip(REASONED, done.columns["generated_text"].to_pylist(), strict=True))
        cut = [list(REASONED).index(name) for name in ("cut", "cut, null")]
        assert list(done.failed) == ([] if keep else cut)
        assert (texts["empty"], texts["cut"], texts["cut, null"], texts["cut answer"]) == ("", None, None, "39")
        tokens = dict(zip(REASONED, done.columns["reasoning_tokens"].to_pylist(), strict=True))
        assert (tokens["whole"], tokens["empty"], tokens["not counted"]) == (5, 0, None)
        assert ("reasoning" in done.columns) is keep
        if keep:
            expected = ["17 * 23 is", None, None, None, "17 * 2", None, None]
            assert done.columns["reasoning"].to_pylist() == expected
    assert len(server.bodies) == len(REASONED)
    assert {body["reasoning_effort"] for body in server.bodies} == {"low"}
