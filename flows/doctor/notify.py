"""The check of who gets messages about a job: the webhooks of `notify`, and the notification blocks of both keys."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

from prefect.settings import temporary_settings

from overnight.flows.doctor.examine import Finding
from overnight.flows.job.model import Job
from overnight.flows.notices.sending import address_of, load_block
from overnight.flows.runs.local_server import client_settings, known_server
from overnight.tasks.errors import OvernightError


def check_notify(job: Job) -> Iterator[Finding]:
    """Check that each webhook has an address, and each block is on the Prefect server. Send nothing.

    A problem is a warning: no run depends on a message, and the server of the deployment may be another one.
    """
    webhooks = dict.fromkeys(receiver.webhook for receiver in job.receivers if receiver.webhook)
    blocks = dict.fromkeys(receiver.block for receiver in job.receivers if receiver.block)
    for webhook in webhooks:
        yield _finding(f"the webhook {webhook}", partial(address_of, webhook), "has an address")
    server = known_server() if blocks else None
    with temporary_settings(client_settings(server)) if server else nullcontext():
        for block in blocks:
            if server:
                yield _finding(block, partial(load_block, block), "is on the Prefect server")
            else:
                yield Finding("notify", "ok", f"{block} is not checked: no Prefect server runs here")


def _finding(name: str, look: Callable[[], object], found: str) -> Finding:
    try:
        look()
    except OvernightError as error:
        return Finding("notify", "warning", str(error).removeprefix("notify: "))
    except Exception as error:  # its text may have an address
        return Finding("notify", "warning", f"{name}: the Prefect server does not answer: {type(error).__name__}")
    return Finding("notify", "ok", f"{name} {found}")
