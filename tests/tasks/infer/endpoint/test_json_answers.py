"""Errors with status 200, content that is not JSON, and counts of tokens in any form."""

import pytest

from overnight.tasks.infer.endpoint.faults import Blame, Fault
from overnight.tasks.infer.endpoint.json_answers import payload_of, tokens_in


@pytest.mark.parametrize(
    ("content", "blame", "words"),
    [
        (b'{"error": {"message": "odd", "code": 400}}', Blame.ROW, "error 400 with status 200: odd"),
        (b'{"error": "upstream"}', Blame.SERVER, "upstream"),
        (b"<html><title>Sign in</title></html>", Blame.SERVER, "expected scores, found 'Sign in'"),
        (b"[" * 100_000, Blame.SERVER, "expected scores"),
        (b"", Blame.SERVER, "found ''"),
    ],
)
def test_an_error_with_status_200_and_other_content_is_a_fault(content: bytes, blame: Blame, words: str) -> None:
    with pytest.raises(Fault) as caught:
        payload_of(content, "scores")
    assert caught.value.blame is blame
    assert words in caught.value.sentence
    assert payload_of(b'{"error": null, "a": 1}', "scores") == {"error": None, "a": 1}


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 3, "total_tokens": 5}, 3),
        ({"total_tokens": 5.0}, 5),
        ({"prompt_tokens": None, "total_tokens": 5}, 5),
        *[({"prompt_tokens": value}, None) for value in (True, "3", -1, 2**70, float("nan"))],
        ([], None),
        (None, None),
    ],
)
def test_tokens_are_counted_or_unknown(usage: object, tokens: int | None) -> None:
    assert tokens_in({"usage": usage}, "prompt_tokens", "total_tokens") == tokens
    assert tokens_in([usage], "prompt_tokens") is None
