"""`overnight verify` as it is typed: what it prints, and its exit codes."""

from pathlib import Path

from tests.flows.compare.test_verification import LINES, ROWS, job_in, publish_rows, published_rows
from tests.overnight.cli.results_on_disk import typed


def test_rows_as_published_exit_with_0(tmp_path: Path) -> None:
    publish_rows(tmp_path, job_in(tmp_path, LINES), published_rows())
    code, out, _ = typed("verify", tmp_path, "--rows", str(ROWS))
    assert code == 0
    assert out == "j/all: 200 of 200 drawn rows are as published; at 95 %, at most 0.00% of the 200 rows differ\n"


def test_rows_that_differ_exit_with_1_and_the_first_are_listed_before_the_reasons(tmp_path: Path) -> None:
    job = job_in(tmp_path, LINES)
    publish_rows(tmp_path, job, published_rows(tampered=7))
    code, out, _ = typed("verify", tmp_path, "--rows", str(ROWS))
    lines = out.splitlines()
    assert (code, lines[0]) == (
        1,
        "j/all: 7 of 200 drawn rows differ; at 95 %, at most 3.50% of the 200 rows differ",
    )
    assert all(line.endswith(" differs in word") for line in lines[1:6])
    assert lines[6] == "  and 2 more"


def test_answers_drawn_at_random_cannot_be_verified_which_exits_with_2(tmp_path: Path) -> None:
    model = {"kind": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m", "user": "{word}", "temperature": 0.7}
    publish_rows(tmp_path, job_in(tmp_path, inference=[model]), published_rows())
    code, _, err = typed("verify", tmp_path)
    assert (code, "draws its answers at random: expected temperature 0" in err) == (2, True)
