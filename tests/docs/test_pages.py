"""Every page's commands, run as they are written, one page after another in a folder of their own.

`overnight` and `python` are functions of this process, see tests/warm_commands.py.
"""

import json
import os
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import warm_commands
from tests.flows.shipped_jobs import (
    JOBS,
    PAGES,
    ROOT,
    assert_each_row_is_as_by_hand,
    commands,
    ledger_of,
    run_in_full,
)

PUBLISHED = re.compile(r"rows: ([\d,]+) in, ([\d,]+) out, ([\d,]+) filtered, ([\d,]+) quarantined")
# What a page promises, beyond rows that are all settled.
SHOWN = {
    "documents.md": (
        r"rows: 24 in, \d+ out, 0 filtered, 1 quarantined",
        r"row_id +string +argparse\.pdf#1\.0 \| argparse\.pdf#1\.1 ",
        r"embedding +fixed_size_list<\w+: float>\[384\]",
        r'"row_id": "shutil\.pdf#\d\.\d"',
        r"scan\.pdf\n(.*\n)+.*expected a PDF file with text, found none on its 2 pages\. If they are scanned",
    ),
    "captions.md": (r"rows: 24 in, 24 out", r"generated_text +string", r"completion_tokens +int64"),
    "chat.md": (
        r"(?s)reviews-chat.*rows: 60 in, 59 out, 0 filtered, 1 quarantined.*reviews-openai.*rows: 60 in, 59 out",
        r"cost +double +\d",
        r"structured_output +struct<mood: string> +\{'mood': '(good|bad)'\}",
        r"answer: expected JSON that fits output_schema, found a text that is not\b",
        r"finish_reason +string +stop",
    ),
    "etl.md": (r"rows: 200 in, ", r"total +double", r"is_large +bool"),
    "extension.md": (r"brightness +double", r"wrote .*my_models\.py"),
    "image-classification.md": (r"rows: 24 in, 24 out", r"top_labels +list", r"top_confidences +list"),
    "image-embeddings.md": (
        r"embedding +fixed_size_list<\w+: float>\[32\]",
        r"1\.0000\D+circle/00\.png",
        r"picture sheet: \.demo/like\.png",
        r'"query": \{\s+"text": "a red circle"',
    ),
    "large-models.md": (
        r"rows: 60 in, 59 out, 0 filtered, 1 quarantined",
        r"structured_output +struct<mood: string> +\{'mood': '(good|bad)'\}",
    ),
    "look-at-rows.md": (
        r"reviews-chat/all: sample of 5 rows, nothing published: \S+/samples/published/\S+",
        r"more: overnight show deployments/jobs/reviews-chat\.yaml --sample\n",
        r"reviews-chat/all/sample-2: sample of 6 rows at \S+ 5 of 6 rows",
        r"reviews-chat/all/sample-1: sample of 5 rows at ",
        r"page: \.demo/rows\.html",
        r"A is all/sample-1, B is all/sample-2\n  only in B: 1 rows: \S+\n  rows in both: 5",
    ),
    "models-of-tables.md": (r"torch_scores", r"onnx_product", r"keras_output", r"species_prediction +string"),
    "pipelines.md": (r"rows: 400 in, 400 out", r"output +list<\w+: struct<entity_group: string, score: float, "),
    "preview.md": (
        r"reviews-chat/all: 4 rows, 0 filtered, 0 quarantined",
        r"inference\.0 chat: load +\d",
        r'"structured_output":\{"mood":"(good|bad)"\}',
    ),
    "several-models.md": (
        r"looks_predicted_label +string",
        r"says_confidence",
        r"second_predicted_label +string.*None",
    ),
    "speech.md": (
        r"rows: 24 in, 40 out, 0 filtered, 1 quarantined",
        r"end_seconds +double +3\.0 \| 6\.0 \| 9\.0",
        r"transcription +string +\w+",
        r"broken-off\.wav\n(.*\n)+.*found 192022 bytes of 384044: it is cut off",
    ),
    "summaries.md": (
        r"rows: 41 in, 40 out, 0 filtered, 1 quarantined",
        r"generated_text +string",
        r"expected at most 1024 tokens, found \d+",
    ),
    "text-classification.md": (r"rows: 400 in, 400 out", r"predicted_label +string +(NEGATIVE|POSITIVE)"),
    "text-embeddings.md": (
        r"rows: 400 in, 400 out",
        r"embedding +fixed_size_list<\w+: float>\[384\]",
        r"0\.[5-9]\d{3}\W+\d\.jsonl#\d+",
    ),
    "text-generation.md": (r"rows: 60 in, ", r"generated_text +string"),
    "video.md": (
        r"rows: 24 in, 66 out, 0 filtered, 1 quarantined",
        r"seconds +double +0\.0 \| 0\.0 \| 1\.0",
        r"labels +list<\w+: string> +\['(circle|square|triangle)'",
        r"broken-off\.mp4\n(.*\n)+.*expected a video file that is whole, found [0-9]+ bytes of [0-9]+: it is cut off",
    ),
}
SEVERAL_ROWS_A_FILE = ("documents.md", "speech.md", "video.md")


@pytest.fixture(scope="module")
def project(demo: Path, ray_session: None) -> Path:
    """The project's folder as the pages know it; its `.demo` is where the workers of the session's Ray look."""
    for name in ("demo", "deployments"):
        (demo.parent / name).symlink_to(ROOT / name)
    return demo.parent


@pytest.mark.slow
@pytest.mark.parametrize("page", [*filter(commands, PAGES)], ids=lambda page: page.stem)
def test_the_commands_of_every_page_do_what_it_says(
    page: Path, project: Path, prefect_api: str, one_thread: None, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        typed = commands(page).replace("8000", str(probe.getsockname()[1]))
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
