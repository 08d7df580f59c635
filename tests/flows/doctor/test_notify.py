"""The check of receivers: addresses in variables, and blocks on a real server. It sends nothing."""

from pathlib import Path

import pytest

from overnight.flows.doctor.notify import check_notify
from tests import jobs
from tests import webhook as webhooks


def found(folder: Path, *receivers: dict[str, str], **schedule: str) -> list[tuple[str, str]]:
    notify = [{"on": ["failed"], **receiver} for receiver in receivers]
    job = jobs.load(folder, notify=notify, schedule={**jobs.DAILY, **schedule})
    return [(finding.level, finding.found) for finding in check_notify(job)]


def test_a_webhook_needs_a_variable_with_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with webhooks.webhook() as server:
        monkeypatch.setenv("GOOD_HOOK", server.url)
        monkeypatch.setenv("BAD_HOOK", "hooks.example.org/T0/secret")
        good, bad, missing = found(tmp_path, *({"webhook": f"${{{name}_HOOK}}"} for name in ("GOOD", "BAD", "NO")))
        assert server.posts == []
    assert good == ("ok", "the webhook ${GOOD_HOOK} has an address")
    assert bad[0] == missing[0] == "warning"
    assert "expected in ${BAD_HOOK} an address that begins with http://" in bad[1]
    assert "secret" not in bad[1]
    assert "the environment variable NO_HOOK is not set" in missing[1]


def test_a_block_has_to_be_on_the_server(prefect_api: str, tmp_path: Path) -> None:
    block = webhooks.save_block("known", "http://127.0.0.1:9/x")
    known, missing, late = found(
        tmp_path, {"block": block}, {"block": "slack-webhook/nobody"}, deadline="06:00", notify="pager-duty-webhook/no"
    )
    results = {known, missing, late}
    assert ("ok", "custom-webhook/known is on the Prefect server") in results
    warnings = [sentence for level, sentence in results if level == "warning"]
    assert len(warnings) == 2
    assert all("on the Prefect server, found none" in sentence for sentence in warnings)
