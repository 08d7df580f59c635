"""The commands of pages, run as they are written, one page after another in a folder of their own.

`overnight` and `python` are functions of this process, see tests/warm_commands.py.
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import warm_commands
from tests.docs.test_typed_commands import refused
from tests.flows.shipped_jobs import (
    JOBS,
    PAGES,
    ROOT,
    assert_each_row_is_as_by_hand,
    commands,
    ledger_of,
    run_in_full,
)
from tests.object_stores import free_port

PUBLISHED = re.compile(r"rows: ([\d,]+) in, ([\d,]+) out, ([\d,]+) filtered, ([\d,]+) quarantined")
# What a page shows, beyond rows that are all settled and as plain libraries make them.
SHOWN = {
    "documents.md": (
        r'"row_id": "shutil\.pdf#\d\.\d"',
        r"scan\.pdf\n(.*\n)+.*expected a PDF file with text, found none on its 2 pages\. If they are scanned",
    ),
    "chat.md": (r"answer: expected JSON that fits output_schema, found a text that is not\b",),
    "change-a-job.md": (r"remembered by looks: 30 rows of earlier runs",),
    "hourly.md": (r"events/2026-11-19T07 published", r"2 of 2 partitions published", r"P 3 published  M 14 missing"),
    "image-embeddings.md": (
        r"1\.0000\D+circle/00\.png",
        r"picture sheet: \.demo/like\.png",
        r'"query": \{\s+"text": "a red circle"',
    ),
    "images-to-json.md": (r"shape +string +[cst]\w+e \| ", r"count +int64 +\d", r"is_filled +bool +(True|False)"),
    "judge.md": (r"agrees +bool +True", r"generated_text +string +(good|bad) ", r"certainty +double +[01]\.\d"),
    "look-at-rows.md": (
        r"reviews-chat/all: sample of 5 rows, nothing published: \S+/samples/published/\S+",
        r"more: overnight show deployments/jobs/reviews-chat\.yaml --sample\n",
        r"reviews-chat/all/sample-2: sample of 6 rows at \S+ 5 of 6 rows",
        r"reviews-chat/all/sample-1: sample of 5 rows at ",
        r"page: \.demo/rows\.html",
        r"A is all/sample-1, B is all/sample-2\n  only in B: 1 rows: \S+\n  rows in both: 5",
    ),
    "models-of-tables.md": (r"torch_scores", r"onnx_product", r"keras_output", r"species_prediction +string"),
    "reuse-answers.md": (r"reused by openai: [1-9]\d answers of earlier runs",),
    "share-a-gpu.md": (r"two\.yaml: job 'two-models' is valid", r"two-models/all: 4 rows, 0 filtered, 0 quarantined"),
    "speech.md": (r"broken-off\.wav\n(.*\n)+.*found 192022 bytes of 384044: it is cut off",),
    "summaries.md": (r"expected at most 1024 tokens, found \d+",),
    "video.md": (r"broken-off\.mp4\n(.*\n)+.*expected a video file that is whole, found [0-9]+ bytes of [0-9]+",),
}
# Pages whose commands show nothing that others do not: only the command line reads them.
SHOWN_ELSEWHERE = {
    "extension.md": "tests/overnight/cli/test_init.py runs the job of a module of your own",
    "image-classification.md": "several-models.md runs the classifier of images among its models",
    "large-models.md": "chat.md runs the same kind of model on the same rows",
    "preview.md": "tests/flows/test_preview.py compares a preview with a run",
    "text-classification.md": "several-models.md runs the classifier of texts among its models",
    "text-embeddings.md": "documents.md embeds the texts of its chunks, and searches them",
    "text-generation.md": "tests/flows/test_shipped_jobs.py runs its job over all rows",
}
RUN = [page for page in PAGES if commands(page) and page.name not in SHOWN_ELSEWHERE]
SEVERAL_ROWS_A_FILE = ("documents.md", "speech.md", "video.md")


@pytest.fixture(scope="module")
def project(demo: Path, ray_session: None) -> Path:
    """The project's folder as the pages know it; its `.demo` is where the workers of the session's Ray look."""
    for name in ("demo", "deployments"):
        (demo.parent / name).symlink_to(ROOT / name)
    return demo.parent


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_commands_of_a_page_do_what_it_says(
    page: Path, project: Path, prefect_api: str, one_thread: None, tmp_path: Path
) -> None:
    typed = commands(page).replace("8000", str(free_port()))
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PREFECT_API_URL": prefect_api,
    }
    for name in ("OVERNIGHT_DEMO", "OPENAI_API_KEY"):  # the page sets them
        del environment[name]
    compared = []

    def compare(program: str, arguments: Sequence[str], code: int) -> None:
        for name in run_in_full(" ".join([program, *arguments])) if code == 0 else ():
            receipt = json.loads((ledger_of(name) / "receipt.json").read_text())
            described = (ROOT / "docs/reference/receipt.md").read_text(encoding="utf-8")
            assert [field for field in receipt if f"`{field}`" not in described] == []
            folder = tmp_path / str(len(compared))
            assert_each_row_is_as_by_hand(name, project / ".demo", receipt, folder)
            compared.append(name)

    done = warm_commands.run_script(typed, project, environment, compare)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert compared == run_in_full(typed)
    runs = [tuple(int(count.replace(",", "")) for count in found) for found in PUBLISHED.findall(done.stdout)]
    assert len(runs) == typed.count("overnight run")
    for rows_in, rows_out, filtered, quarantined in runs:
        written = rows_in - filtered - quarantined
        assert rows_out > written > 0 if page.name in SEVERAL_ROWS_A_FILE else rows_out == written > 0
        assert quarantined <= 2
    for words in SHOWN.get(page.name, ()):
        assert re.search(words, done.stdout), done.stdout


def test_every_page_is_in_the_list_and_every_job_that_ships_has_a_page() -> None:
    listed = (ROOT / "docs/how-to/index.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if f"]({page.name})" not in listed] == []
    pages = "\n".join(page.read_text(encoding="utf-8") for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
    jobs = [job.name for job in JOBS.glob("*.yaml")]
    assert [name for name in jobs if name not in pages] == []


@pytest.mark.parametrize("page", SHOWN_ELSEWHERE)
def test_the_command_line_reads_the_commands_of_the_other_pages(page: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = commands(ROOT / "docs/how-to" / page)
    assert refused(script) == []
    assert [name for name in run_in_full(script) if not (JOBS / name).is_file()] == []
