"""The messages about wrong job files: review a change of messages.txt as a diff, and make it again by messages.py."""

from tests.flows.job.messages import TABLE, cases, table


def test_what_is_said_of_wrong_jobs_is_what_was_reviewed() -> None:
    assert table(cases()) == TABLE.read_text()


def test_each_wrong_job_is_refused_without_its_secrets_or_the_words_of_pydantic() -> None:
    assert len(set(cases())) == len(cases()) > 90
    messages = "\n".join(line for line in TABLE.read_text().splitlines() if not line.startswith("> "))
    for word in ("(valid)", "pydantic", "tagged", "canary", "hunter2"):
        assert word not in messages
