"""The statuses of a job's partitions for Python. A preview imports this module, so it imports no Prefect."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overnight.flows.ledger.partition_status import PartitionStatus


class Statuses(list["PartitionStatus"]):
    """A list of the statuses of a job's partitions, by date.

    Each entry has `partition`, `status`, `why`, `receipt`, `failure` and `since`.
    """

    def __init__(self, entries: "Iterable[PartitionStatus]", job_name: str, reports: str = "") -> None:
        super().__init__(entries)
        self.job_name, self.reports = job_name, reports

    def _repr_html_(self) -> str:
        from overnight.api.html import statuses_as_html

        return statuses_as_html(self, self.reports)
