"""How long a server asks to wait, and whether a limit can be waited for."""

import httpx
import pytest

from overnight.tasks.infer.endpoint.faults import Blame, exceeds_alone, fault_of


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Rate limit reached: Limit 30000, Used 29000, Requested 1200. Please try again in 1s.", False),
        ("Request too large for m on TPM: Limit 30,000, Requested 36,278.", True),
        ("Request too large for m on TPM: Limit 30000, Requested 100, Used 29950.", False),
        ("Request too large", True),
        ("the prompt is too long", True),
        ("Too many requests", False),
        ("Limit: , Requested: ,", False),
    ],
)
def test_a_limit_that_one_request_exceeds_alone(words: str, expected: bool) -> None:
    assert exceeds_alone(words) is expected


@pytest.mark.parametrize(
    ("status", "body", "blame"),
    [
        (429, {"error": {"code": "insufficient_quota"}}, Blame.KEY),
        (429, {"error": "insufficient_quota"}, Blame.KEY),
        (400, {"error": {"innererror": {"code": "ResponsibleAIPolicyViolation"}}}, Blame.ROW),
        (404, {"error": {"code": "model_not_found"}}, Blame.SETTINGS),
        (418, None, Blame.ROW),
        (599, [], Blame.SERVER),
        (304, "moved", Blame.SETTINGS),
    ],
)
def test_a_code_in_the_error_says_more_than_the_status(status: int, body: object, blame: Blame) -> None:
    assert fault_of(httpx.Response(status, json=body)).blame is blame
