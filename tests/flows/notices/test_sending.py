"""Messages to a real webhook and to a real block on a real Prefect server, and receivers that do not take them."""

import logging
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from email import message_from_bytes

import pytest
from apprise.plugins.pagerduty import PAGERDUTY_API_LOOKUP
from apprise.plugins.slack import NotifySlack
from prefect.blocks.notifications import PagerDutyWebHook, SlackWebhook

from overnight.flows.job.notify import Receiver
from overnight.flows.notices import sending
from overnight.flows.notices.message import Message
from overnight.flows.notices.sending import NotificationFailed, send, within
from overnight.tasks.config.masking import masked
from overnight.tasks.errors import JobError
from tests import webhook as webhooks
from tests.webhook import SECRET, Webhook

HOOK = Receiver(on=["failed"], webhook="${OPS_HOOK}")
MESSAGE = Message("digits", "2026-01-01", "failed", ("failed",), "It failed in infer: b.")


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setattr(sending, "SECONDS_BETWEEN", 0.05)
    with webhooks.webhook() as server:
        monkeypatch.setenv("OPS_HOOK", server.url)
        yield server


def test_a_webhook_gets_the_message_as_json_and_its_address_is_hidden(
    webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        send(HOOK, MESSAGE)
    assert webhook.posts == [MESSAGE.as_json()]
    assert SECRET not in caplog.text
    assert masked(f"POST {webhook.url}") == "POST ***"


@pytest.mark.parametrize(("status", "tries"), [(503, 3), (404, 1), (302, 1)])
def test_a_webhook_that_refuses_is_named_without_its_address(webhook: Webhook, status: int, tries: int) -> None:
    webhook.status = status
    with pytest.raises(NotificationFailed) as caught:
        send(HOOK, MESSAGE)
    assert str(caught.value) == f"the webhook ${{OPS_HOOK}} did not take the message: status {status}"
    assert webhook.refused == tries


def test_a_webhook_that_is_not_there_is_tried_again(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("OPS_HOOK", f"http://127.0.0.1:{port}/{SECRET}")
    with pytest.raises(NotificationFailed, match="OPS_HOOK} did not take the message: ConnectError"):
        send(HOOK, MESSAGE)


def test_a_webhook_that_hangs_up_after_it_has_the_message_gets_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    posts = []

    def hang_up(server: socket.socket) -> None:
        while True:
            with server.accept()[0] as connection:
                posts.append(connection.recv(65536))

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=hang_up, args=(server,), daemon=True).start()
        monkeypatch.setenv("OPS_HOOK", f"http://127.0.0.1:{server.getsockname()[1]}/{SECRET}")
        with pytest.raises(NotificationFailed, match="OPS_HOOK} did not take the message"):
            send(HOOK, MESSAGE)
        assert len(posts) == 1


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_a_receiver_whose_library_ends_its_thread_did_not_take_the_message(error: BaseException) -> None:
    def end() -> None:
        raise error

    with pytest.raises(NotificationFailed, match=f"pager did not take the message: {type(error).__name__}"):
        within(5, "pager", end)


@pytest.mark.parametrize("address", ["", "hooks.example.org/T0", "file:///etc/passwd"])
def test_a_variable_without_an_address_is_named(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("OPS_HOOK", address)
    with pytest.raises(JobError, match=r"expected in \$\{OPS_HOOK\} an address") as caught:
        send(HOOK, MESSAGE)
    assert not address or address not in str(caught.value)


def test_a_receiver_that_never_answers_takes_a_bounded_time() -> None:
    stop = threading.Event()
    start = time.monotonic()
    with pytest.raises(NotificationFailed, match="pager did not answer in 0 s"):
        within(0.2, "pager", stop.wait)
    assert time.monotonic() - start < 5
    stop.set()


def test_a_block_gets_the_message_and_one_that_is_not_there_is_named(prefect_api: str, webhook: Webhook) -> None:
    block = webhooks.save_block("pager", webhook.url)
    send(Receiver(on=["failed"], block=block), MESSAGE)
    assert webhook.posts == [{"title": "digits/2026-01-01 failed", "text": "It failed in infer: b."}]
    webhook.status = 500
    with pytest.raises(NotificationFailed) as caught:
        send(Receiver(on=["failed"], block=block), MESSAGE)
    assert str(caught.value) == "custom-webhook/pager did not take the message: HTTPStatusError 500"
    with pytest.raises(JobError, match="expected a block slack-webhook/nobody on the Prefect server"):
        send(Receiver(on=["failed"], block="slack-webhook/nobody"), MESSAGE)


SLACK = "https://hooks.slack.com/services/T00000000/B00000000/abcdefghijklmnopqrstuvwx"


def test_slack_and_pagerduty_get_the_message_by_prefects_own_blocks(
    prefect_api: str, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The hosts of both services are constants of the library.
    monkeypatch.setattr(NotifySlack, "webhook_url", webhook.url)
    monkeypatch.setitem(PAGERDUTY_API_LOOKUP, "us", webhook.url)
    SlackWebhook(url=SLACK).save("ops", overwrite=True)
    PagerDutyWebHook(integration_key="k" * 32, api_key="a" * 20).save("ops", overwrite=True)
    for block in ("slack-webhook/ops", "pager-duty-webhook/ops"):
        send(Receiver(on=["failed"], block=block), MESSAGE)
    slack, pager = webhook.posts
    (attachment,) = slack["attachments"]
    assert (attachment["title"], attachment["text"]) == (MESSAGE.title, MESSAGE.text)
    assert pager["payload"]["summary"].strip() == MESSAGE.title
    assert list(pager["payload"]["custom_details"].values()) == [MESSAGE.text]
    webhook.status = 403
    with pytest.raises(NotificationFailed, match="slack-webhook/ops did not take the message: NotificationError"):
        send(Receiver(on=["failed"], block="slack-webhook/ops"), MESSAGE)


class MailServer(socketserver.StreamRequestHandler):
    """A server of SMTP, whose `mails` has the lines of each mail that it took."""

    def handle(self) -> None:
        self.wfile.write(b"220 ready\r\n")
        for line in self.rfile:
            command = line.strip().upper()
            if command == b"DATA":
                self.wfile.write(b"354 send\r\n")
                self.server.mails.append(list(iter(self.rfile.readline, b".\r\n")))  # type: ignore[attr-defined]
            self.wfile.write(b"221 bye\r\n" if command == b"QUIT" else b"250 ok\r\n")


def test_a_mail_server_gets_the_message_by_a_block_that_takes_addresses_of_apprise(prefect_api: str) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), MailServer) as server:
        server.daemon_threads, mails = True, []
        server.mails = mails  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        address = f"mailto://localhost:{server.server_address[1]}?smtp=127.0.0.1&from=a@example.org&to=b@example.org"
        SlackWebhook(url=address).save("mail", overwrite=True)
        send(Receiver(on=["failed"], block="slack-webhook/mail"), MESSAGE)
        server.shutdown()
    (mail,) = (message_from_bytes(b"".join(lines)) for lines in mails)
    assert (mail["Subject"], mail["To"]) == (MESSAGE.title, "b@example.org")
    texts = [part.get_payload(decode=True) for part in mail.walk() if not part.is_multipart()]
    assert MESSAGE.sentence.encode() in texts[0]


def test_a_block_of_another_kind_is_refused(prefect_api: str) -> None:
    from prefect.blocks.system import Secret

    Secret(value="x").save("no-receiver", overwrite=True)
    with pytest.raises(JobError, match="expected a notification block, found secret/no-receiver, a Secret"):
        send(Receiver(on=["failed"], block="secret/no-receiver"), MESSAGE)
