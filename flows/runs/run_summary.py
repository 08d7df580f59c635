"""The first artifact of a run, as Markdown: the verdict, the counts, the reasons, advice, and where everything is."""

from collections.abc import Mapping, Sequence
from typing import Any

from overnight.flows.runs import run_sentences
from overnight.tasks.artifacts import cell, markdown_table
from overnight.tasks.errors import OvernightError
from overnight.tasks.state.run import Run

COUNTS = {
    "rows_in": "rows read",
    "rows_out": "rows published",
    "rows_filtered": "rows filtered",
    "rows_duplicate": "of these, duplicates",
    "rows_quarantined": "rows quarantined",
    "rows_resumed": "rows taken from an earlier attempt",
    "seconds": "seconds",
    "rows_per_second": "rows per second",
}
Reasons = Sequence[tuple[str, int]]


def of_published(
    run: Run, receipt: Mapping[str, Any], why: Reasons, places: Mapping[str, str], links: Mapping[str, str]
) -> str:
    """Return the summary of a run that published, as Markdown.

    `why` has each reason of quarantined rows with its number of rows. `places` has the name and the path of each file
    or table, and `links` the name and the address of other artifacts.
    """
    mark = "⚠️" if receipt["rows_quarantined"] or receipt.get("warnings") else "✅"
    counts = COUNTS | ({"rows_out": "rows in the sample"} if receipt["limit_rows"] else {})
    shown = {name: receipt[key] for key, name in counts.items() if receipt.get(key) or key in ("rows_in", "rows_out")}
    stages = [
        f"| {stage} | {measured['rows']:,} | {measured['seconds']:,.1f} |"
        for stage, measured in receipt["stages"].items()
        if measured["rows"]
    ]
    return _joined(
        f"# {mark} {cell(run.job)}/{cell(run.partition)}",
        f"**{cell(run_sentences.published(receipt, why))}**",
        _warnings(receipt),
        markdown_table(shown),
        _reasons(why),
        f"**Advice**: {cell(receipt['performance']['advice'])}.",
        _links(links),
        _places(places),
        "\n".join(["| stage | rows | worker seconds |", "| --- | ---: | ---: |", *stages]) if stages else "",
    )


def of_failed(
    run: Run, error: OvernightError, why: Reasons, places: Mapping[str, str], links: Mapping[str, str]
) -> str:
    """Return the summary of a run that failed, as Markdown, with the whole message of its error.

    `why` has each reason of quarantined rows with its number of rows. `places` has the name and the path of each file,
    and `links` the name and the address of other artifacts.
    """
    message = "\n".join(f"> {cell(line)}  " for line in error.message.splitlines())
    partition = "" if run.partition == "all" else f" --partition {run.partition}"
    count = sum(number for _, number in why)
    return _joined(
        f"# ❌ {cell(run.job)}/{cell(run.partition)} failed in {error.stage}",
        message,
        f"{count:,} row{'s' * (count != 1)} quarantined until then." if why else "",
        _reasons(why),
        f"**Next**: correct the cause, then `overnight run JOB.yaml{partition}`, or Retry on this page. "
        "The rows that are done are kept.",
        _links(links),
        _places(places),
    )


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _warnings(receipt: Mapping[str, Any]) -> str:
    return "\n".join(f"- ⚠️ {cell(warning)}" for warning in receipt.get("warnings", []))


def _reasons(why: Reasons) -> str:
    if not why:
        return ""
    lines = ["| rows | why they are quarantined |", "| ---: | --- |"]
    lines += [f"| {count:,} | {cell(reason)} |" for reason, count in why[:10]]
    more = f"\n\nand {len(why) - 10:,} other reasons" if len(why) > 10 else ""
    return "\n".join(lines) + more


def _links(links: Mapping[str, str]) -> str:
    return f"**See** {' · '.join(f'[{name}]({address})' for name, address in links.items())}" if links else ""


def _places(places: Mapping[str, str]) -> str:
    return "\n".join(f"- {name}: `{place.replace('`', '')}`" for name, place in places.items() if place)
