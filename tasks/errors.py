"""Errors that a user can act on: what was expected, what was found, what to do.

Errors of libraries become errors of this tree in `storage/error_translation.py`. They travel between processes, so each
carries only strings and can be pickled. A message contains no secret of a URL and no control character that a terminal
obeys.
"""

import difflib
from collections.abc import Iterable, Sequence

from overnight.tasks.config.masking import masked, printable

# The names of Ray's errors for lost processes, nodes and objects. This file must not import Ray.
LOST = frozenset(
    {
        *("WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError", "OutOfMemoryError", "OwnerDiedError"),
        *("RayActorError", "ActorDiedError", "ActorUnavailableError", "ObjectLostError", "ObjectFetchTimedOutError"),
        "ObjectReconstructionFailedError",
    }
)
# This text begins the reason of the one row that represents the rest of a file.
BROKEN_OFF = "the file cannot be read from here on"
STAGES = ("ingest", "shuffle", "preprocess", "infer", "write")
STREAM_STAGES = ("ingest", "preprocess", "infer", "write")  # the stages that rows stream through


def first_line(message: str) -> str:
    """Return the first line of a message, and the line that follows it if the first ends in a colon."""
    first, second, *_ = [*message.splitlines(), "", ""]
    return f"{first} {second.strip()}".rstrip() if first.endswith(":") else first


def shortened(names: Sequence[str], most: int) -> str:
    """Return the first `most` names, joined by commas, and how many others there are: `a, b and 3 more`."""
    text = ", ".join(names[:most])
    if len(names) > most:
        text += f" and {len(names) - most:,} more"
    return text


# The tree of errors:
#
#    OvernightError
#      JobError                 the job file, a parameter or a path in it is wrong
#      PlanError                the cluster is too small for the job
#      InputError               the source cannot be listed or read
#      ContractError            user code, a model or a table does not keep to what was agreed
#        UnreadableKind         the kind of sink has no read of its own (write/sink.py)
#      CheckFailed              a check refused the publish
#        OtherColumns           new rows have other columns than the published rows that stay
#        TooManyQuarantined     more rows are quarantined than the job allows
#        NotKept                the rows of an earlier publish are no longer there
#      StageFailed              a stage failed for another reason
#        WorkerLost             a worker process or a node died
#          RayEnded             the Ray of this process ended (flows/runs/local_ray.py)
#      ServiceUnavailable       a store, a database or another service does not answer; a later attempt may succeed
#      AccessDenied             a service refuses this user, or has no space or quota left; a user must act
#      BudgetReached            the run has spent the job's `budget`; a larger one goes on
#      LedgerCorrupt            a receipt, a manifest or another record on disk cannot be read
#      PartitionBusy            another run holds the partition (state/lease.py)
#      LeaseLost                another run has taken the partition over (state/lease.py)
#      RunCancelled             a user cancelled the run (flows/runs/cancellation.py)
#      StreamStopped            the stream ends early, because a user interrupted the run (write/stream/progress.py)
#      TooManyCrashes           the process of the run died each time (flows/runs/retries.py)
#      BackfillFailed           some partitions of a backfill failed (flows/backfill.py)
#      NotificationFailed       a notification was not delivered (flows/freshness.py)
#      RetryRefused             the quarantined rows of a partition cannot run alone
#      NoResult                 the published partition or the sample does not exist (flows/ledger/results.py)
#      NotVerifiable            published rows cannot be computed again (flows/compare/verification.py)
#      NothingToSearch          no published rows can be searched (flows/similarity_search.py)
#    RowError                   one row failed, and is quarantined
#      SourceChanged            its file was replaced after it was listed (ingest/versioned_file.py)
#      SourceVanished           its file is gone (ingest/versioned_file.py)
#      SourceArchived           its file is in an archive, from which it must be restored (ingest/versioned_file.py)
#      InvalidValues            a step or a model returned values that no column can have
class OvernightError(Exception):
    """A failure with a message for the user."""

    stage = "plan"  # or one of `STAGES`
    status = "failed"  # the end of the run; a user may also have `cancelled` it
    recorded_as = ""  # in `error_type`, if that is not the name of the class: records outlast a change of names

    def __init__(self, message: str, stage: str | None = None) -> None:
        message = printable(masked(message))
        super().__init__(message, stage)
        self.message = message
        if stage:
            self.stage = stage

    @property
    def error_type(self) -> str:
        """The name of the error in records, such as `failure.json`."""
        return self.recorded_as or type(self).__name__

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple:
        # Not by `args`: Ray Data appends its own advice to them.
        return type(self), (self.message, self.stage)


class JobError(OvernightError):
    """The job file, a parameter or a path in it is wrong, or a library that the job needs is not installed."""


class PlanError(OvernightError):
    """The cluster has too few resources for what the job requires."""


class InputError(OvernightError):
    """The source cannot be listed or read as the job describes it."""

    stage = "ingest"


class ContractError(OvernightError):
    """User code, a model or a table breaks a rule for its columns or values, so none of its rows can be trusted."""

    stage = "infer"


class CheckFailed(OvernightError):
    """A check of the job, or one that Overnight always makes, refused the publish."""

    stage = "write"


class TooManyQuarantined(CheckFailed):
    """It is certain that more rows are quarantined than `checks.max_quarantined` allows."""


class OtherColumns(CheckFailed):
    """New rows have other columns than the published rows that a run keeps. The next run is of all rows."""


class NotKept(CheckFailed):
    """The rows of an earlier publish are no longer there, or the sink never keeps them."""


class RetryRefused(OvernightError):
    """The quarantined rows of a partition cannot run alone. No row ran, and what is published stays."""


class StageFailed(OvernightError):
    """A stage failed for an unexpected reason. `error_type` is the name of the cause's type."""

    def __init__(self, message: str, stage: str | None = None, error_type: str = "") -> None:
        super().__init__(message, stage)
        self._error_type = error_type

    @property
    def error_type(self) -> str:
        return self._error_type

    def __reduce__(self) -> tuple:
        return type(self), (self.message, self.stage, self._error_type)


class WorkerLost(StageFailed):
    """A process or node died, and Ray has used up its restarts. A new attempt resumes from the staged parts."""


class ServiceUnavailable(OvernightError):
    """A store, a database or another service did not recover in time. A new attempt resumes from the staged parts."""

    stage = ""  # `explain` fills in the stage that used the service
    recorded_as = "StorageFailed"


class AccessDenied(OvernightError):
    """A service refuses until a user acts: permission, space or quota is missing."""

    stage = ""
    recorded_as = "StorageRefused"


class BudgetReached(OvernightError):
    """The run has spent the job's `budget`. What is done is kept, and a run with a larger budget goes on."""

    stage = "infer"


class LedgerCorrupt(OvernightError):
    """A ledger file (receipt, manifest, lease) cannot be parsed."""

    recorded_as = "LedgerBroken"


class RowError(Exception):
    """One row failed, and is quarantined. The message is recorded unchanged as the reason."""


class InvalidValues(RowError):
    """A step or model returned values that no column can hold. The fault is in the step or model, not in the row."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean x?)` if one of `known` is close to `name`, otherwise an empty string."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""


def find_cause(error: BaseException) -> OvernightError | None:
    """Return the `OvernightError` that `error` is, or that Ray, Ray Data or Prefect wrapped in it; otherwise None."""
    history: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending:
        candidate = pending.pop(0)
        if not isinstance(candidate, BaseException) or candidate in history:
            continue
        history.append(candidate)
        inner = getattr(candidate, "cause", None)  # the class of Ray's wrapper is a subclass of its cause's class
        if isinstance(candidate, OvernightError) and inner is None:
            return candidate
        pending += [inner, candidate.__cause__, candidate.__context__]
    return None


def explain(error: BaseException, stage: str) -> OvernightError:
    """Return the `OvernightError` that `error` is or contains, otherwise its innermost cause as one of `stage`."""
    if cause := find_cause(error):
        cause.stage = cause.stage or stage
        return cause
    while inner := getattr(error, "cause", None) or error.__cause__:
        error = inner
    name = type(error).__name__
    message = f"{name}: {error}" if str(error) else name
    failure = WorkerLost if name in LOST else StageFailed
    return failure(message, stage, name)


def detached(error: OvernightError) -> OvernightError:
    """Return `error` without traceback and causes: their frames keep Ray Data's executor and its actors alive."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
