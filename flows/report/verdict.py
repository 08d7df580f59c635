"""Judge a run in one sentence: whether to trust its rows, and why. List the checks with their bounds and values."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from overnight.flows.ledger.staleness import undo_text
from overnight.flows.report.columns import Column
from overnight.tasks.errors import first_line
from overnight.tasks.write.kinds import Checks

TITLES = {"trust": "Trust it", "look": "Look first", "no": "Not published"}
State = Literal["passed", "failed", "not compared"]
Record = Mapping[str, Any]
NAMED = 3
UNREAD = "rows of this sink"  # the part that a page lacks if a sink has no method that reads its rows
USUAL_FALL = 0.02  # of the agreement with labels, from one partition to the next


@dataclass(frozen=True)
class Verdict:
    """Whether to trust the rows, by a key of `TITLES`, and the sentence with the reason."""

    level: str
    sentence: str

    @property
    def title(self) -> str:
        return TITLES[self.level]


@dataclass(frozen=True)
class Check:
    """A check of the job: its setting, its bound, the value, and how it ended."""

    name: str
    bound: str
    value: str
    state: State = "passed"


def judge(
    record: Record,
    checks: Sequence[Check],
    columns: Sequence[Column],
    published_before: bool,
    agreement: Sequence[float | None] = (None, None),
    lacks: Collection[str] = (),
    most_frequent: float | None = None,
) -> Verdict:
    """Return the verdict on a receipt, or on the record of a run that did not publish.

    `agreement` has the shares of equal predictions and labels, now and before, and `lacks` the missing parts.
    """
    if record.get("status") != "published":
        stays = "no rows of this partition are published"
        if published_before:
            stays = "the rows that were published before stay"
        stage = record.get("stage") or "an unknown stage"
        if record.get("status") == "cancelled":
            return Verdict("no", f"Nothing new to trust: the run was cancelled in {stage}, and {stays}.")
        reason = first_line(str(record.get("error_message") or "")).split(". ")[0].rstrip(".")
        return Verdict("no", f"Nothing new to trust: the run failed in {stage}, and {stays}. Its error: {reason}.")
    counts = f"{_rows(record['rows_out'])} published of {record['rows_in']:,} read"
    if filter_count := record.get("rows_filtered"):
        counts += f", {filter_count:,} filtered"
    if quarantine_count := record.get("rows_quarantined"):
        counts += f", {quarantine_count:,} quarantined"
    if undo := record.get("undo"):
        counts += f", again the rows of {undo['generation']}, because {undo_text(record)}"
    pass_count = sum(check.state == "passed" for check in checks)
    passed_checks = f"{pass_count} check{'s' * (pass_count != 1)} passed"
    doubts = _doubts(record, columns, *agreement)
    if agreement[0] is not None and most_frequent is not None and agreement[0] <= most_frequent:
        doubt = f"the predictions agree with the labels in {agreement[0]:.1%} of the rows"
        doubts.append(f"{doubt}, no more than the most frequent label alone would")
    doubts += [f"this page cannot show the {part}" for part in ("checks", "columns") if part in lacks]
    if "rows" in lacks:
        doubts.append("the published rows cannot be read")
    if doubts:
        return Verdict("look", f"Look before you use it: {'; '.join(doubts)}. {counts}; {passed_checks}.")
    if record.get("limit_rows"):
        return Verdict("look", f"A sample, nothing is published: {counts}; {passed_checks}.")
    drift = "no column drifted"
    if not any(column.drift for column in columns):
        drift = "no column can be compared with an earlier partition"
    unseen = " This page shows no rows, because the sink has no method that reads them." * (UNREAD in lacks)
    return Verdict("trust", f"Trust it: {counts}; {passed_checks}, and {drift}.{unseen}")


def _doubts(record: Record, columns: Sequence[Column], agreement: float | None, before: float | None) -> list[str]:
    doubts = [str(warning).rstrip(".") for warning in (record.get("warnings") or [])[:NAMED]]
    names = [column.name for column in columns if column.has_drift]
    if names:
        more = f" and {len(names) - NAMED} more" * (len(names) > NAMED)
        doubts.append(f"drift in {', '.join(names[:NAMED])}{more}")
    if agreement is not None and before is not None and agreement < before - USUAL_FALL:
        doubts.append(f"the agreement with the labels fell from {before:.1%} to {agreement:.1%}")
    return doubts


def list_checks(record: Record, checks: Checks) -> list[Check]:
    """Return the checks of a job with their bounds, and with the values of a receipt.

    A run that a check refused has no values: its message has a sentence for each failure.
    """
    if record.get("status") != "published":
        return list(_refusals(record))
    total, quarantine_count = record["rows_in"], record["rows_quarantined"]
    limit = checks.quarantine_limit(total)
    row_count = record.get("rows_written", record["rows_out"])
    rows = [
        Check("min_rows", f"at least {checks.min_rows:,}", f"{row_count:,}"),
        Check("max_quarantined", f"at most {limit:,} ({checks.max_quarantined:.3g})", f"{quarantine_count:,}"),
    ]
    columns = record.get("columns") or {}
    for name, fraction in checks.max_null.items():
        column = columns.get(name) or {}
        count = column.get("nulls", 0) + column.get("nan", 0)
        rows.append(Check(f"max_null.{name}", f"at most {fraction:.3g} of the rows", f"{_rows(count)} without a value"))
    for name in checks.not_constant:
        rows.append(Check(f"not_constant.{name}", "different values", "different values"))
    for name in checks.drift:
        distances = ((record.get("checks") or {}).get("drift") or {}).get(name, {})
        for figure, bound in checks.drift_bounds(name, columns.get(name) or {}).items():
            check = Check(f"drift.{name}.{figure}", f"at most {bound:g}", "nothing to compare with", "not compared")
            if figure in distances:
                check = replace(check, value=f"{distances[figure]:.3g}", state="passed")
            rows.append(check)
    if checks.agreement:
        rows.append(_agreement(record, checks.agreement.at_least))
    if checks.python:
        rows.append(Check(f"python: {checks.python}", "no problem", "no problem"))
    return rows


def _agreement(record: Record, at_least: float) -> Check:
    check = Check("agreement", f"at least {at_least:.6g}", "nothing to compare with", "not compared")
    figures = (record.get("checks") or {}).get("agreement")
    if not figures:
        return check
    names = ", ".join(figures["columns"])
    value = f"{figures['share']:.6g} of {_rows(figures['rows'])} have the same {names} as before"
    return replace(check, value=value, state="passed")


def _refusals(record: Record) -> list[Check]:
    checks = []
    for line in str(record.get("error_message") or "").splitlines():
        name, colon, sentence = line.strip().partition(": ")
        if colon and name.startswith(("checks.", "source.allow_empty")):
            checks.append(Check(name.removeprefix("checks."), "", sentence, "failed"))
    return checks


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
