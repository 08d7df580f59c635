"""The site of all jobs: which states it finds, where its links lead, and that texts stay texts."""

import json
import posixpath
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from overnight.flows.history.site import find_states, read_site, write_site
from overnight.tasks.errors import OvernightError
from overnight.tasks.storage.location import Location
from tests.flows.history.states import fail, publish, receipt


class Links(HTMLParser):
    """Collects the links of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name == "href"]


def lake(folder: Path) -> Path:
    """Two jobs, one of which has a state folder of another name."""
    publish(folder / "lake/cats/_overnight", receipt("2026-01-01", job="cats"), 0.9)
    publish(folder / "lake/cats/_overnight", receipt("2026-01-02", 10.0, job="cats"), 0.9)
    fail(folder / "lake/cats/_overnight", "2026-01-03", "no memory", "cats")
    publish(folder / "lake/deep/dogs-state", receipt("2026-01-01", job="dogs"))
    publish(folder / "lake/deep/dogs-state/samples", receipt("2026-01-01", job="dogs"))
    (folder / "lake/cats/date=2026-01-01").mkdir()
    (folder / "lake/loop").symlink_to(folder / "lake")
    return folder / "lake"


def test_states_are_found_by_their_name_or_by_their_receipts(tmp_path: Path) -> None:
    folder = lake(tmp_path)
    found = [str(state) for state in find_states(Location(str(folder)))]
    assert sorted(found) == [f"{folder}/cats/_overnight", f"{folder}/deep/dogs-state"]
    assert [str(state) for state in find_states(Location(f"{folder}/cats/_overnight"))] == [f"{folder}/cats/_overnight"]
    with pytest.raises(OvernightError, match="expected a folder with the results of jobs"):
        find_states(Location(f"{folder}/gone"))


@pytest.mark.parametrize("output", ["", "lake/pages/here", "elsewhere"])
def test_every_link_of_the_site_leads_to_a_file_beside_it(tmp_path: Path, output: str) -> None:
    folder = lake(tmp_path)
    for _ in range(2):  # the second time, copies stay
        site, histories = write_site(Location(str(folder)), Location(str(tmp_path / output)) if output else None)
    where = Path(str(site))
    links = {page: [link for link in Links(page).found if link[0] != "#"] for page in where.glob("*.html")}
    assert [history.job for history in histories] == ["cats", "dogs"]
    assert len(links) == 3
    assert all((page.parent / unquote(link)).is_file() for page, found in links.items() for link in found)
    job_page = next(page for page in links if page.name.startswith("cats"))
    reports = [(job_page.parent / unquote(link)).read_text() for link in links[job_page]]
    assert "the page of a failure" in reports
    assert not any(link.startswith("/") or ":" in link for found in links.values() for link in found)


@pytest.mark.parametrize("output", [None, "pages"])
def test_a_bucket_has_a_site_whose_links_lead_to_objects(s3: Any, tmp_path: Path, output: str | None) -> None:
    bucket, folder = f"site-{output or 'inside'}", lake(tmp_path)
    s3.create_bucket(Bucket=bucket)
    for file in folder.rglob("*"):
        if file.is_file() and "loop" not in file.parts:
            s3.upload_file(str(file), bucket, f"lake/{file.relative_to(folder)}")
    place = Location(f"s3://{bucket}/{output}") if output else None
    site, histories = write_site(Location(f"s3://{bucket}/lake"), place)
    keys = {item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    root = str(site).removeprefix(f"s3://{bucket}/")
    assert [history.job for history in histories] == ["cats", "dogs"]
    pages = [key for key in keys if re.fullmatch(f"{root}/[^/]+html", key)]
    assert len(pages) == 3
    for page in pages:
        text = s3.get_object(Bucket=bucket, Key=page)["Body"].read().decode()
        links = [unquote(link) for link in re.findall(r'href="([^"#]+)"', text)]
        assert links
        assert {posixpath.normpath(f"{root}/{link}") for link in links} <= keys


def test_a_site_in_another_place_has_copies_and_gets_those_of_new_runs(tmp_path: Path) -> None:
    folder, output = lake(tmp_path), Location(str(tmp_path / "elsewhere"))
    write_site(Location(str(folder)), output)
    [copy] = (tmp_path / "elsewhere").glob("dogs-*/*/*.html")
    copy.write_text("kept")
    publish(folder / "deep/dogs-state", receipt("2026-01-01", job="dogs", attempt="later"), report="new")
    write_site(Location(str(folder)), output)
    assert sorted(file.read_text() for file in copy.parent.iterdir()) == ["kept", "new"]


def test_the_page_of_the_run_before_is_no_copy_for_a_run_that_has_just_published(tmp_path: Path) -> None:
    folder, output = lake(tmp_path), Location(str(tmp_path / "elsewhere"))
    ledger = folder / "deep/dogs-state/date=2026-01-01"
    publish(folder / "deep/dogs-state", receipt("2026-01-01", job="dogs", attempt="later"), report="the earlier run")
    [facts] = (ledger / "reports").glob("*.json")
    record = json.loads(facts.read_text())
    facts.write_text(json.dumps({**record, "attempt": "earlier"}))
    write_site(Location(str(folder)), output)
    assert list((tmp_path / "elsewhere").glob("dogs-*/*/*.html")) == []
    facts.write_text(json.dumps({**record, "attempt": "later"}))
    write_site(Location(str(folder)), output)
    assert len(list((tmp_path / "elsewhere").glob("dogs-*/*/*.html"))) == 1


def test_the_names_of_pages_do_not_depend_on_how_the_folder_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lake(tmp_path)
    monkeypatch.chdir(folder)
    for path in (str(folder), "."):
        write_site(Location(path))
    assert len(list((folder / "_overnight_site").iterdir())) == 3


def test_pages_show_paths_below_the_folder_and_none_of_the_machine(tmp_path: Path) -> None:
    folder = lake(tmp_path)
    (folder / "deep/dogs-state/date=2026-01-01/receipt.json").write_text("{")
    site, _ = write_site(Location(str(folder)))
    pages = {page.name: page.read_text() for page in Path(str(site)).glob("*.html")}
    assert "<bdi>cats/_overnight</bdi>" in pages["index.html"]
    assert "deep/dogs-state/date=2026-01-01/receipt.json: expected a JSON object" in pages["index.html"]
    assert not any(str(tmp_path) in text for text in pages.values())


def test_a_job_whose_receipts_are_damaged_costs_no_other(tmp_path: Path) -> None:
    folder = lake(tmp_path)
    (folder / "cats/_overnight/date=2026-01-01/receipt.json").write_text("{")
    (folder / "deep/dogs-state/date=2026-01-01/receipt.json").write_text('{"rows": 1}')
    publish(folder / "owls/_overnight", receipt("2026-01-01", job="owls"))
    histories = read_site(find_states(Location(str(folder))))
    assert {history.job: bool(history.problem) for history in histories} == {"cats": True, "deep": True, "owls": False}
    site, _ = write_site(Location(str(folder)))
    assert "expected a JSON object" in Path(str(site), "index.html").read_text()


def test_a_folder_without_jobs_has_an_index_that_says_so(tmp_path: Path) -> None:
    site, _ = write_site(Location(str(tmp_path)))
    assert "No job has a state here" in Path(str(site), "index.html").read_text()
    assert Path(str(site)).stat().st_mode & 0o777 == 0o700
