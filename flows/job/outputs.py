"""Where runs of a job keep their records and publish their rows. Samples have a place apart from real data."""

from dataclasses import dataclass

from overnight.tasks.state.run import ledger_name
from overnight.tasks.storage.location import Location
from overnight.tasks.write.kinds import Sink


@dataclass(frozen=True)
class Outputs:
    """The place of a job's partitions, or of its samples, which `--limit-rows` makes."""

    state: Location  # the directory of the ledgers
    files: Location  # the directory of the files that receipts list
    sink: Sink
    are_samples: bool = False

    def ledger(self, partition: str) -> Location:
        """Return the directory of a partition's records: `date=D` or `all`."""
        return self.state / ledger_name(self.sink.partition_column, partition)

    @property
    def show_option(self) -> str:
        """Return the option of `overnight show` for these results, with a blank before it; empty for partitions."""
        return " --sample" if self.are_samples else ""
