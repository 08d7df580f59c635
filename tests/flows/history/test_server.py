"""The server of the site: its login, what it answers, and what it refuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
from prefect.settings import PREFECT_API_AUTH_STRING, temporary_settings

from overnight.flows.history import server
from overnight.flows.history.server import site_served
from overnight.tasks.errors import OvernightError
from overnight.tasks.storage.location import Location
from tests.flows.history.states import publish, receipt
from tests.flows.history.test_site import lake

LOGIN = ("overnight", "a-password")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """The address of the served site of two jobs."""
    states = [Location(f"{lake(tmp_path)}/cats/_overnight")]
    with (
        temporary_settings({PREFECT_API_AUTH_STRING: ":".join(LOGIN)}),
        site_served(lambda: states, port=0) as line,
    ):
        assert "a-password" not in line
        yield line.split()[1]


def test_the_index_leads_to_a_job_and_from_there_to_a_report(site: str) -> None:
    with httpx.Client(auth=LOGIN, trust_env=False) as client:
        index = client.get(site)
        assert (index.status_code, index.headers["cache-control"]) == (200, "no-store")
        job = client.get(urljoin(site, index.text.split('<th scope="row" class="whole"><a href="')[1].split('"')[0]))
        report = client.get(urljoin(str(job.url), job.text.split('<td class="day published">')[1].split('"')[1]))
        assert (report.status_code, report.text) == (200, "page")


@pytest.mark.parametrize("login", [None, ("overnight", "another"), ("", "")])
def test_without_the_login_there_is_no_page(site: str, login: tuple[str, str] | None) -> None:
    answer = httpx.get(site, auth=login, trust_env=False)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Basic realm="Overnight"')
    assert "cats" not in answer.text


def test_a_page_of_another_site_cannot_use_a_name_of_its_own_for_this_machine(site: str) -> None:
    for host in ("evil.example", "[", ""):
        answer = httpx.get(site, auth=LOGIN, headers={"Host": host}, trust_env=False)
        assert answer.status_code == 403


def test_the_host_that_the_user_names_is_answered() -> None:
    name = "127.1"  # which resolves to 127.0.0.1, and is no address in full
    with (
        temporary_settings({PREFECT_API_AUTH_STRING: ":".join(LOGIN)}),
        site_served(lambda: [], host=name, port=0) as line,
    ):
        assert httpx.get(line.split()[1], auth=LOGIN, headers={"Host": name}, trust_env=False).status_code == 200


def test_an_error_of_any_kind_is_an_answer(tmp_path: Path) -> None:
    def states() -> list[Location]:
        raise ConnectionError("the store is away")

    with (
        temporary_settings({PREFECT_API_AUTH_STRING: ":".join(LOGIN)}),
        site_served(states, port=0) as line,
    ):
        answer = httpx.get(line.split()[1], auth=LOGIN, trust_env=False)
    assert (answer.status_code, answer.text) == (503, "the store is away")
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["date=2026-01-01/receipt.json", "../../../etc/passwd", "%2e%2e/%2e%2e/job.yaml", ""])
def test_it_has_pages_alone(site: str, path: str) -> None:
    slug = httpx.get(site, auth=LOGIN, trust_env=False).text.split('<a href="cats-')[1].split(".html")[0]
    answer = httpx.get(f"{site}cats-{slug}/{path}", auth=LOGIN, trust_env=False)
    assert answer.status_code == 404


def test_new_runs_are_seen_and_a_damaged_receipt_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FRESH_SECONDS", 0.0)
    state = tmp_path / "cats/_overnight"
    publish(state, receipt("2026-01-01", job="cats"))
    with (
        temporary_settings({PREFECT_API_AUTH_STRING: ":".join(LOGIN)}),
        site_served(lambda: [Location(str(state))], port=0) as line,
        httpx.Client(auth=LOGIN, trust_env=False) as client,
    ):
        address = line.split()[1]
        assert "1 published" in client.get(address).text
        publish(state, receipt("2026-01-02", job="cats"))
        assert "2 published" in client.get(address).text
        (state / "date=2026-01-02/receipt.json").write_text(json.dumps([]))
        assert "expected a JSON object" in client.get(address).text


def test_a_port_that_is_taken_is_refused_and_without_one_another_is_found(tmp_path: Path) -> None:
    with site_served(lambda: [], port=0) as line:
        port = int(line.split()[1].rstrip("/").rpartition(":")[2])
        with pytest.raises(OvernightError, match="and a free port"), site_served(lambda: [], port=port):
            pass
    with site_served(lambda: []) as first, site_served(lambda: []) as second:
        assert first.split()[1] != second.split()[1]
