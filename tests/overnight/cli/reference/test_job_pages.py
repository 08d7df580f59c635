"""The pages of the job file have each section, each kind and each key."""

from overnight.cli.reference.job_pages import SECTIONS, job_pages, kinds
from overnight.flows.job.model import Job


def test_each_kind_has_a_heading_and_each_key_of_the_top_a_row() -> None:
    pages = job_pages()
    for section in SECTIONS:
        assert [kind for kind in kinds(section) if f"\n## {kind}\n" not in pages[f"reference/job-file/{section}"]] == []
    top = pages["reference/job-file/top"]
    assert [
        key for key in Job.model_fields if f"| `{key}` |" not in top and f"| [`{key}`]({key}.md) |" not in top
    ] == []


def test_a_key_that_all_kinds_share_is_listed_once() -> None:
    page = job_pages()["reference/job-file/inference"]
    assert page.count("| `gpu_memory` |") == 1
