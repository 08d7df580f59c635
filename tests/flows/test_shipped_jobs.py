"""The job files that ship and that no page runs in full: each row is what plain libraries give.

tests/docs/test_pages.py compares the others, when their pages have run them.
"""

from pathlib import Path
from typing import Any

import pytest

from tests import warm_commands
from tests.flows import shipped_jobs
from tests.flows.conftest import RunJob
from tests.flows.shipped_jobs import COMPARED, ELSEWHERE, JOBS, LIKE, PAGES, ROOT

ON_PAGES = {name for page in PAGES for name in shipped_jobs.run_in_full(shipped_jobs.commands(page))}
# The photos of the demo stand in for those of the bucket, its CLIP for OpenAI's.
SETTINGS = {"doggos.yaml": ["inference.0.model=${OVERNIGHT_DEMO}/clip", "inference.0.num_gpus=0"]}


@pytest.fixture(scope="module")
def filled(demo: Path, s3: Any, one_thread: None) -> Path:
    """What the commands of the pages and of the README make, and the two buckets."""
    for name, *arguments in (
        ["workload.py", "sentences", "writer", "photos", "clip"],
        ["make_data.py", ".demo"],
        ["train_model.py", ".demo"],
        ["upload.py", ".demo/digits", "s3://overnight/digits"],
        ["upload.py", ".demo/photos", "s3://doggos-dataset/train"],
    ):
        done = warm_commands.run("python", [str(ROOT / "demo" / name), *arguments], demo.parent)
        assert done.returncode == 0, done.stderr
    s3.put_bucket_acl(Bucket="doggos-dataset", ACL="public-read")
    for item in s3.list_objects_v2(Bucket="doggos-dataset")["Contents"]:
        s3.put_object_acl(Bucket="doggos-dataset", Key=item["Key"], ACL="public-read")
    return demo


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(COMPARED.keys() - ON_PAGES))
def test_each_row_of_a_job_that_ships_is_what_the_plain_library_gives(
    name: str, filled: Path, run_job: RunJob, tmp_path: Path
) -> None:
    receipt = run_job(JOBS / name, shipped_jobs.partition_of(name), settings=SETTINGS.get(name, []))
    shipped_jobs.assert_each_row_is_as_by_hand(name, filled, receipt, tmp_path)


def test_every_job_that_ships_is_compared_here_or_in_a_test_that_is_named() -> None:
    assert {file.name for file in JOBS.glob("*.yaml")} == COMPARED.keys() | ELSEWHERE.keys() | LIKE.keys()
    assert set(LIKE.values()) <= COMPARED.keys()
    assert [file for file in ELSEWHERE.values() if not (ROOT / "tests" / file).is_file()] == []
