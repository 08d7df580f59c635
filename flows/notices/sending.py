"""Send a message to a receiver: by a notification block of the Prefect server, or as JSON to a webhook.

Each takes a bounded time. Errors name the receiver, and never its address, which often holds a token.
"""

import contextvars
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block

from overnight.flows.job.notify import Receiver
from overnight.flows.notices.message import Message
from overnight.tasks.config.masking import hide_variable
from overnight.tasks.errors import JobError, OvernightError
from overnight.tasks.storage.location import expand

TRIES, SECONDS_BETWEEN, CONNECT_SECONDS = 3, 1.0, 5.0
LONGEST_SECONDS = 20.0  # a block waits as long as its library does, and a webhook may answer byte by byte
TRIED_AGAIN = (429, 500, 502, 503, 504)


class NotificationFailed(OvernightError):
    """Raised when a receiver did not take a message."""


def send(receiver: Receiver, message: Message) -> None:
    """Send a message. Raise `NotificationFailed` if it is not taken, and `JobError` if the receiver is not there."""
    within(LONGEST_SECONDS, receiver.name, lambda: _send(receiver, message))


def _send(receiver: Receiver, message: Message) -> None:
    logging.getLogger("httpx").setLevel(logging.WARNING)  # otherwise it logs the address
    if receiver.block:
        block = load_block(receiver.block)
        with block.raise_on_failure():
            block.notify(message.text, message.title)  # type: ignore[unused-coroutine]
    else:
        _post(receiver, message.as_json())


def load_block(name: str) -> NotificationBlock:
    """Return the notification block `type/name` of the Prefect server. Raise `JobError` if it is not there."""
    import prefect.blocks.notifications  # noqa: F401 - registers the block types

    try:
        block = Block.load(name)
    except ValueError as error:
        raise JobError(
            f"notify: expected a block {name} on the Prefect server, found none ({error}). Create it in the UI under "
            "Blocks, or name another: `prefect block ls` lists them."
        ) from None
    if not isinstance(block, NotificationBlock):
        raise JobError(f"notify: expected a notification block, found {name}, a {type(block).__name__}.")
    return block


def address_of(webhook: str) -> str:
    """Return the address in the variable `webhook`, such as `${HOOK}`, and hide it in the texts of this process."""
    hide_variable(webhook[2:-1])
    address = expand(webhook)
    if not address.startswith(("http://", "https://")):
        raise JobError(f"notify: expected in {webhook} an address that begins with http:// or https://, found none.")
    return address


def within(seconds: float, name: str, call: Callable[[], object]) -> None:
    """Call a function in a thread. Raise `NotificationFailed` if it fails or takes longer; the thread then ends later.

    The text of its error may contain an address, so only the type of the error is shown.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # without it, such an end of the thread would count as taken
            errors.append(error)

    context = contextvars.copy_context()  # without it, the thread would use another Prefect server
    thread = threading.Thread(target=context.run, args=(run,), name="notice", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise NotificationFailed(f"{name} did not answer in {seconds:.0f} s")
    if errors and isinstance(errors[0], OvernightError):
        raise errors[0]
    if errors:
        status = getattr(getattr(errors[0], "response", None), "status_code", "")
        raise NotificationFailed(f"{name} did not take the message: {type(errors[0]).__name__} {status}".rstrip())


def _post(receiver: Receiver, body: dict[str, Any]) -> None:
    address, problem = address_of(str(receiver.webhook)), ""
    timeout = httpx.Timeout(LONGEST_SECONDS, connect=CONNECT_SECONDS)
    for number in range(TRIES):
        if number:
            time.sleep(SECONDS_BETWEEN)
        try:
            status = httpx.post(address, json=body, timeout=timeout).status_code
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            problem = type(error).__name__
            if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
                continue
            break  # the webhook may have the message
        if 200 <= status < 300:
            return
        problem = f"status {status}"
        if status not in TRIED_AGAIN:
            break
    raise NotificationFailed(f"{receiver.name} did not take the message: {problem}")
