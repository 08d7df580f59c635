"""The commands of the pages outside docs/how-to/: README.md, the tutorial, operations and the reference.

The commands of a page run in their order: those of the tutorial on its photos, those of the other pages on a job
`my_job.yaml` of one table per day. `NOT_RUN` lists the commands of Overnight that do not run here, with reasons.
"""

import os
import re
import shlex
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
import yaml
from PIL import Image

from overnight.cli.main import main
from tests import warm_commands
from tests.flows.shipped_jobs import ROOT

TUTORIAL = ROOT / "docs/tutorial.md"
OTHERS = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if "how-to" not in page.parts]
COMMAND = re.compile(rf"^(?:    )?(overnight (?:{'|'.join(main.commands)}) .*)$", re.MULTILINE)
LINE = re.compile(r"^    ((?:\.venv/bin/)?overnight .*)$", re.MULTILINE)
ELSEWHERE = ("overnight serve", "overnight deploy", "overnight doctor")
DAYS = {"2026-10-01": "2026-11-17"}  # so that the backfill has two days instead of 49
NOT_RUN = {
    "overnight serve deployments/jobs/digits.yaml": "tests/packaging/test_wheel.py starts one and stops it",
    "overnight serve my_job.yaml": "tests/packaging/test_wheel.py starts one and stops it",
    "overnight metrics my_job.yaml": "it serves until it is stopped; tests/flows/scrape.py starts the same server",
    "overnight deploy my_job.yaml": "tests/packaging/test_wheel.py deploys to a server of its own",
    "overnight site s3://bucket/lake": "tests/flows/history/test_site.py writes one in a bucket",
    "overnight site s3://bucket/lake --output /srv/pages": "tests/flows/history/test_site.py writes one in two places",
    "overnight site . --serve": "it serves until it is stopped; tests/overnight/cli/test_site.py starts one",
}
MODEL = """
class Doubled:
    def __call__(self, batch):
        if (batch["x"] == 7).any():
            raise ValueError("no seven")
        return {"twice": 2 * batch["x"]}
"""
FIX = "sed -i 's/== 7/== -1/' my_models.py"
# What the commands of the front page print, and those of the others; two of these come before a page changes the model.
FIRST = ("backfills.md", "status.md")
SHOWN = {
    "front": (
        r"mine/\S+: 7 rows, 0 filtered, 1 quarantined",
        r"rows: 20 in, 19 out, 0 filtered, 1 quarantined, 0 resumed",
        r"retried: 1 quarantined before; now 1 written",
        r"sample of 20 rows, nothing published",
        r"mine: 2 of 2 partitions published",
        r"P 2 published .* S 1 stale",
        r"mine/\S+: 0 quarantined, 0 shown",
        r"mine/2026-11-17 published",
    ),
    "others": (
        r"(?s)mine: would run 2 partitions.*mine: would run [12] partition",
        r"mine: 2 of 2 partitions published",
        r"mine: no partition from 2026-11-18 to 2026-11-19 is missing or failed; found 2 published",
        r"retried: 1 quarantined before; now 1 written",
        r"P [12] published",
        r'"partition": "2026-11-19",\s+"status": "published"',
        r'"rows_in": 20,',
        r'"limit_rows": 1000',
    ),
}
# The range of the pages is a year; here it is two days.
MY_DAYS = {"2026-01-01": "2026-11-18", "2026-12-31": "2026-11-19"}
BACKFILL_ID = "2fb671e2"


def typed(text: str) -> list[str]:
    """Return the commands of Overnight in a text, each in a line."""
    return COMMAND.findall(text.replace("\\\n", " "))


def refused(text: str) -> list[str]:
    """Return why the command line refuses commands of a text. It finds the job files, which are empty, here."""
    found = []
    for line in typed(text):
        _, name, *arguments = shlex.split(re.split(" > | [|][|] ", line)[0], comments=True)
        for argument in arguments:
            if argument.endswith(".yaml"):
                Path(argument).parent.mkdir(parents=True, exist_ok=True)
                Path(argument).touch()
        try:
            main.commands[name].make_context(name, arguments)
        except click.UsageError as error:
            found.append(f"{line}: {error.format_message()}")
    return found


def lines(page: Path) -> list[str]:
    """Return the page's lines for a shell, without their comments."""
    return [line.partition("  #")[0].rstrip() for line in LINE.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.slow
def test_the_tutorial_s_commands_run_in_their_order(prefect_api: str, ray_session: None, tmp_path: Path) -> None:
    for folder in ("photos", *(f"days/date=2026-11-{day}" for day in (17, 18, 19))):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(12):
            Image.new("RGB", (64, 48), (number, 0, 0)).save(tmp_path / folder / f"{number}.png")
    lines = [line for line in typed(TUTORIAL.read_text(encoding="utf-8")) if not line.startswith(ELSEWHERE)]
    [first_of_a_day] = [place for place, line in enumerate(lines) if line.endswith("--partition 2026-11-19")]
    change = r's#path: \(.*\)photos/#path: "\1days/date={partition}/"#; s#/brightness}#/by_day}#'
    to_days = f"sed -i '{change}' brightness.yaml"  # as section 6 asks its reader to
    script = "\n".join([*lines[:first_of_a_day], to_days, *lines[first_of_a_day:]])
    for written, wanted in DAYS.items():
        script = script.replace(written, wanted)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PREFECT_API_URL": prefect_api,
    }

    done = warm_commands.run_script(script, tmp_path, environment, lambda program, arguments, code: None)

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "brightness: would run 2 partitions" in done.stdout
    assert "brightness: 2 of 2 partitions published" in done.stdout
    receipts = sorted(tmp_path.glob("predictions/*/_overnight/*/receipt.json"))
    assert [receipt.parent.name for receipt in receipts] == [
        "all",
        *(f"date=2026-11-{day}" for day in (17, 18, 19)),
    ]


@pytest.mark.parametrize(
    "page", [page for page in OTHERS if typed(page.read_text(encoding="utf-8"))], ids=lambda page: page.stem
)
def test_the_command_line_reads_the_commands_of_a_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(page.read_text(encoding="utf-8")) == []


def run_lines(page: Path) -> list[str]:
    return [line for line in lines(page) if line not in NOT_RUN] if page != TUTORIAL else []


@pytest.fixture
def my_job(tmp_path: Path) -> Path:
    """A folder with the reader's job: a table of 20 rows for each of a few days, of which the model refuses one."""
    today = datetime.now(UTC).date()
    for day in ("2026-11-17", "2026-11-18", "2026-11-19", today - timedelta(days=1), today):
        (tmp_path / f"in/date={day}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"in/date={day}/rows.csv").write_text("x\n" + "".join(f"{x}\n" for x in range(20)))
    job = {
        "name": "mine",
        "source": {"kind": "csv", "path": str(tmp_path / "in/date={partition}/")},
        "inference": [{"kind": "python", "target": "my_models:Doubled"}],
        "checks": {"max_quarantined": 0.05},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    (tmp_path / "my_job.yaml").write_text(yaml.safe_dump(job))
    (tmp_path / "my_models.py").write_text(MODEL)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("pages", SHOWN)
def test_the_commands_of_the_other_pages_run_on_a_job(
    pages: str, my_job: Path, prefect_api: str, ray_session: None
) -> None:
    front, others = OTHERS[:1], sorted(OTHERS[1:], key=lambda page: page.name not in FIRST)
    paths = front if pages == "front" else others
    script = "\n".join(line for page in paths for line in run_lines(page)).replace(".venv/bin/overnight", "overnight")
    for written, wanted in MY_DAYS.items():
        script = script.replace(written, wanted)
    script = script.replace(BACKFILL_ID, "$(sed -n 's/^backfill //p' said)")
    script = re.sub(r"^(.*--retry-quarantined)", rf"{FIX}\n\1", script, flags=re.MULTILINE)
    environment = {**os.environ, "PREFECT_API_URL": prefect_api}

    done = warm_commands.run_script(f"exec 2>said\nset -x\n{script}", my_job, environment, lambda *_: None)

    assert done.returncode == 0, f"{done.stdout}\n{(my_job / 'said').read_text()}"
    for words in SHOWN[pages]:
        assert re.search(words, done.stdout), done.stdout


def test_each_command_that_does_not_run_is_on_a_page() -> None:
    assert NOT_RUN.keys() - {line for page in OTHERS for line in lines(page)} == set()
