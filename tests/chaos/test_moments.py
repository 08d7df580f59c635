"""What a test draws can be drawn again."""

import pytest

from tests.chaos.moments import Moments

pytestmark = pytest.mark.chaos


def drawn(test: str, seed: int) -> list[object]:
    moments = Moments(test, seed)
    return [moments.number(0, 10**6), moments.seconds(0, 1), moments.one_of("abcdef"), moments.in_order("abcdef")]


def test_one_seed_draws_the_same_moments_again_and_others_for_another_test_or_seed() -> None:
    assert drawn("a", 1) == drawn("a", 1)
    assert drawn("a", 1) != drawn("b", 1)
    assert drawn("a", 1) != drawn("a", 2)


def test_every_kill_is_printed_with_its_moment_its_victim_and_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    moments = Moments("a", 1)
    moments.record("the flow killed", 7)
    assert moments.kills == [capsys.readouterr().out.strip()]
    assert moments.kills[0].startswith("a: the flow killed after 0.")
    assert moments.kills[0].endswith("s, 7 parts staged")
