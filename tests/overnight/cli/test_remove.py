"""What `overnight remove` prints of its report."""

import pytest

from overnight.cli.remove import show_removal

ITEM = {"kind": "deployment", "name": "batch-inference/[bold]", "remark": ""}
ROWS = {"kind": "published rows", "name": "/out", "remark": "to delete it: rm -r /out"}


@pytest.mark.parametrize(
    ("key", "is_dry", "end"),
    [("removable", True, "would be removed; add --yes to remove them"), ("removed", False, "removed")],
)
def test_each_object_is_a_line_that_can_be_copied(
    key: str, is_dry: bool, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    long = ROWS | {"name": "/" + "long" * 60}
    show_removal({"job": "digits", "dry_run": is_dry, key: [ITEM], "stays": [long]})
    assert capsys.readouterr().out.splitlines() == [
        f"digits: 1 objects of the server {end}",
        "  deployment batch-inference/[bold]",
        "stays:",
        f"  published rows {long['name']}: to delete it: rm -r /out",
    ]
