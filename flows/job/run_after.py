"""The settings of `run_after`: a job that this one follows, and the partitions of it that a partition needs."""

from datetime import date, timedelta
from typing import Annotated, Any, Self

from pydantic import Field, PrivateAttr

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
            description="The partitions of the other job that a partition needs: the same, the last N days that end "
            "with it, or all that are published, for a job whose only partition is all.",
        ),
    ] = "same"

    _upstream: Upstream | None = PrivateAttr(None)

    def reading(self, upstream: Upstream, is_dated: bool) -> Self:
        """Return a copy that knows the other job. Raise `JobError` if its partitions do not fit those of this job."""
        kinds = (is_dated, upstream.is_dated)
        if self.partition == "all":
            fits, expected = not is_dated, "no {partition} in the source of this job"
        elif self.partition == "same":
            fits, expected = kinds in ((True, True), (False, False)), "{partition} in the sources of both jobs, or none"
        else:
            fits, expected = all(kinds), "{partition} in the sources of both jobs"
        if not fits:
            words = ["with" if kind else "without" for kind in kinds]
            raise JobError(
                f"run_after.partition: {self.partition}: expected {expected}, found this job {words[0]} it, and "
                f"{upstream.job_file} {words[1]} it."
            )
        copy = self.model_copy()
        copy._upstream = upstream
        return copy

    @property
    def upstream(self) -> Upstream:
        """Return the other job. Raise `JobError` if no job was set by `reading`."""
        if self._upstream is None:
            raise JobError(f"run_after.job: expected a job file that was loaded, found only its name, {self.job}.")
        return self._upstream

    @property
    def days(self) -> int:
        """Return the number of the other job's days that a partition needs."""
        return int(self.partition.removeprefix("last ")) if self.partition.startswith("last ") else 1

    def partitions(self, partition: str) -> list[str]:
        """Return the other job's partitions that `partition` needs; none if it takes whatever is published."""
        if self.partition == "all":
            return []
        if partition == "all":
            return ["all"]
        last = date.fromisoformat(partition)
        return [(last - timedelta(days=number)).isoformat() for number in reversed(range(self.days))]


def as_list(value: Any) -> Any:
    """Return the value in a list, unless it is a list."""
    return value if isinstance(value, list) else [value]
