"""Errors that a user can act on: what was expected, what was found, what to do.

    OvernightError
      JobError                 the job file, a parameter or a path in it is wrong
      PlanError                the cluster is too small for the job
      InputError               the source cannot be listed or read
      ContractError            user code, a model or a table does not keep to what was agreed
      CheckFailed              a check refused the publish
        TooManyQuarantined     more rows are quarantined than the job allows
      StageFailed              a stage failed for another reason
        WorkerLost             a worker process or a node died
          RayEnded             the Ray of this process ended (flows/runs/local_ray.py)
      ServiceUnavailable       a store, a database or another service does not answer; a later attempt may succeed
      AccessDenied             a service refuses this user, or has no space or quota left; a user must act
      LedgerCorrupt            a receipt, a manifest or another record on disk cannot be read
      PartitionBusy            another run holds the partition (state/lease.py)
      LeaseLost                another run has taken the partition over (state/lease.py)
      RunCancelled             a user cancelled the run (flows/runs/cancellation.py)
      TooManyCrashes           the process of the run died each time (flows/runs/retries.py)
      BackfillFailed           some partitions of a backfill failed (flows/backfill.py)
      NotificationFailed       a notification was not delivered (flows/freshness.py)
      RetryRefused             the quarantined rows of a partition cannot run alone
      NoResult                 the published partition or the sample to look at does not exist (flows/ledger/results.py)
      NothingToSearch          no published rows can be searched (flows/similarity_search.py)
    RowError                   one row failed, and is quarantined
      SourceChanged            its file was replaced after it was listed (ingest/versioned_file.py)
      SourceVanished           its file is gone (ingest/versioned_file.py)
      SourceArchived           its file is in an archive, from which it must be restored (ingest/versioned_file.py)
      InvalidValues            a step or a model returned values that no column can have

Errors of libraries become errors of this tree in `storage/error_translation.py`. They travel between processes, so each
carries only strings and can be pickled. A message contains no secret of a URL and no control character that a terminal
obeys.
"""

import difflib
from collections.abc import Iterable

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
    """Return the first line of a message, for a place that has one line.

    If that line ends in a colon, also return the line that follows it.
    """
    first, *others = message.splitlines() or [""]
    return f"{first} {others[0].strip()}" if first.endswith(":") and others else first


class OvernightError(Exception):
    """A failure with a message for the user.

    `stage` is one of `STAGES`, or "plan" before the first of them. `status` is the end of the run: `failed`, or
    `cancelled` by a user.
    """

    stage = "plan"
    status = "failed"
    recorded_as = ""  # in `error_type`, if that is not the name of the class: records outlast a change of names

    def __init__(self, message: str, stage: str | None = None) -> None:
        message = printable(masked(message))
        super().__init__(message, stage)
        self.message = message
        if stage:
            self.stage = stage

    @property
    def error_type(self) -> str:
        """Return the name of the error in records, such as `failure.json`."""
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


class RetryRefused(OvernightError):
    """The quarantined rows of a partition cannot run alone. No row ran, and what is published stays."""


class StageFailed(OvernightError):
    """A stage failed for an unexpected reason. `error_type` is the name of the cause's type."""

    def __init__(self, message: str, stage: str | None = None, error_type: str = "") -> None:
        super().__init__(message, stage)
        self._error_type = error_type

    @property
    def error_type(self) -> str:
        """Return the name of the type of the error that caused the failure."""
        return self._error_type

    def __reduce__(self) -> tuple:
        return type(self), (self.message, self.stage, self._error_type)


class WorkerLost(StageFailed):
    """A process or node died during a stage, and Ray has used up its restarts.

    A new attempt resumes from the staged parts.
    """


class ServiceUnavailable(OvernightError):
    """A store, a database or another service did not recover in time. A new attempt resumes from the staged parts."""

    stage = ""  # `explain` fills in the stage that used the service
    recorded_as = "StorageFailed"


class AccessDenied(OvernightError):
    """A service refuses until a user acts: permission, space or quota is missing."""

    stage = ""
    recorded_as = "StorageRefused"


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
    """Return `error` if it is an `OvernightError`, otherwise the one that Ray, Ray Data or Prefect wrapped in it.

    Return None without one.
    """
    seen: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending:
        found = pending.pop(0)
        if not isinstance(found, BaseException) or found in seen:
            continue
        seen.append(found)
        inner = getattr(found, "cause", None)  # the class of Ray's wrapper is a subclass of its cause's class
        if isinstance(found, OvernightError) and inner is None:
            return found
        pending += [inner, found.__cause__, found.__context__]
    return None


def explain(error: BaseException, stage: str) -> OvernightError:
    """Return `error` as an `OvernightError`.

    If `error` is or contains one, return that one. Otherwise return its innermost cause as a `StageFailed` of `stage`,
    or as `WorkerLost` if a process or a node died.
    """
    if known := find_cause(error):
        known.stage = known.stage or stage
        return known
    while inner := getattr(error, "cause", None) or error.__cause__:
        error = inner
    name = type(error).__name__
    return (WorkerLost if name in LOST else StageFailed)(f"{name}: {error}" if str(error) else name, stage, name)


def detached(error: OvernightError) -> OvernightError:
    """Return `error` without traceback and causes: their frames keep Ray Data's executor and its actors alive."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
