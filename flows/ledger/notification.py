"""Notifications through the Prefect block that a job names, as `type/name`. No address of one reaches a log."""

from prefect.blocks.abstract import NotificationBlock
from prefect.blocks.core import Block

from overnight.tasks.errors import JobError, OvernightError


class NotificationFailed(OvernightError):
    """Somebody was to be told and could not be."""


def notify(block: str, subject: str, text: str) -> None:
    """Sends it. Raises `JobError` for a block that is not there and `NotificationFailed` where it cannot be sent."""
    import prefect.blocks.notifications  # noqa: F401 - so that Prefect knows its types

    try:
        found = Block.load(block)
    except ValueError as error:
        raise JobError(
            f"schedule.notify: expected a block {block} on the Prefect server, found none ({error}). Make it in the "
            "UI under Blocks, or name another: `prefect block ls` lists them."
        ) from None
    if not isinstance(found, NotificationBlock):
        raise JobError(f"schedule.notify: expected a notification block, found {block}, a {type(found).__name__}.")
    try:
        with found.raise_on_failure():
            found.notify(text, subject)  # type: ignore[unused-coroutine]
    except Exception as error:
        # Its words may hold the address, which is a secret.
        status = getattr(getattr(error, "response", None), "status_code", "")
        raise NotificationFailed(
            f"schedule.notify: {block} did not take the notification: {type(error).__name__} {status}".rstrip()
            + ". It is sent again by the next check of the partition, or at the next deadline, for a week."
        ) from None
