"""The settings of `run_after`: a job that this one follows, and the partitions of it that a partition needs."""

from datetime import date
from itertools import chain
from typing import Annotated, Any, Self

from pydantic import Field, PrivateAttr

from overnight.flows.job.partitions import Partitions
from overnight.tasks.config.partition_names import partition_name, time_and_value
from overnight.tasks.config.periods import first_day, name_of, number_of_day
from overnight.tasks.config.settings import Settings
from overnight.tasks.errors import JobError
from overnight.tasks.ingest.kinds import Upstream


class RunAfter(Settings):
    """A job whose publish starts this one."""

    job: Annotated[
        str, Field(min_length=1, examples=["orders.yaml"], description="The other job's file; ${ENV_VAR} expands.")
    ]
    partition: Annotated[
        str,
        Field(
            pattern=r"^(same|all|last [1-9][0-9]{0,2})$",
            examples=["last 7"],
            description="The partitions of the other job that a partition needs: the same, the last N periods "
            "that end with it, or all that are published, for a job whose only partition is all.",
        ),
    ] = "same"

    _upstream: Upstream | None = PrivateAttr(None)
    _periods: Partitions | None = PrivateAttr(None)  # of the job that follows

    def checked(self, own: Partitions | None, upstream: Partitions | None) -> Partitions | None:
        """Return the partitions of this job, `own`. Raise `JobError` if `partition` does not fit both jobs."""
        if self.partition == "all":
            fits, rule = own is None, "this job without partitions, so without {partition} in its source"
        elif self.partition == "same":
            fits, rule = (own is None) == (upstream is None), "partitions in both jobs, or in none"
        else:
            fits, rule = bool(own and own.every and upstream), "partitions in both jobs, of time in this one"
        if not fits:
            words = "with" if own else "without", "with" if upstream else "without"
            raise JobError(
                f"run_after.partition: {self.partition}: expected {rule}; found this job {words[0]} "
                f"partitions, and {self.job} {words[1]}."
            )
        return own

    def reading(self, upstream: Upstream, own: Partitions | None) -> Self:
        """Return a copy that knows the other job, and the partitions of this one, `own`."""
        copy = self.model_copy()
        copy._upstream, copy._periods = upstream, own
        return copy

    @property
    def upstream(self) -> Upstream:
        """Return the other job. Raise `JobError` if no job was set by `reading`."""
        if self._upstream is None:
            raise JobError(f"run_after.job: expected a job file that was loaded, found only its name, {self.job}.")
        return self._upstream

    @property
    def count(self) -> int:
        """Return the number of partitions, as this job has them, that a partition needs."""
        words = self.partition.split()
        return int(words[-1]) if len(words) > 1 else 1

    def partitions(self, partition: str) -> list[str]:
        """Return the other job's partitions that `partition` needs; none if it takes whatever is published."""
        if self.partition == "all":
            return []
        names = [*self.moved(partition, range(1 - self.count, 0)), partition]
        return list(dict.fromkeys(chain.from_iterable(map(self.upstream.names, names))))

    def moved(self, partition: str, steps: range) -> list[str]:
        """Return the partitions of this job with the value of `partition`, later by these numbers of periods."""
        periods = self._periods
        if not steps or periods is None or periods.every is None:
            return []
        number = periods.number(partition) or 0
        value = time_and_value(partition)[1]
        return [partition_name(name_of(periods.every, number + step), value) for step in steps]

    def first_day(self, start: date | None) -> date | None:
        """Return the first day that a partition of the day `start` needs."""
        periods = self._periods
        if start is None or periods is None or periods.every is None:
            return start
        unit = periods.every
        return first_day(unit, number_of_day(unit, start) + 1 - self.count)


def as_list(value: Any) -> Any:
    """Return the value in a list, unless it is a list."""
    return value if isinstance(value, list) else [value]
