"""What `overnight run` prints of a receipt."""

import pytest

from overnight.cli.run import show_receipt
from overnight.flows.job.model import Job


def test_the_files_of_a_sample_are_named_where_they_lie_and_what_was_passed_over_in_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written = {"source": {"kind": "text", "path": "in"}, "sink": {"kind": "parquet", "path": "/out"}}
    job = Job.model_validate({"name": "texts", **written})
    numbers = dict.fromkeys(["rows_in", "rows_out", "rows_filtered", "rows_quarantined", "rows_resumed"], 1)
    times = {"finished_at": "2026", "seconds": 1.0, "rows_per_second": 1.0}
    receipt = {"job": "texts", "partition": "all", "status": "published", "files": ["a.parquet"], **numbers, **times}
    for limit_rows, file in ((None, "/out/a.parquet"), (5, "/out/_overnight/samples/published/a.parquet")):
        show_receipt({**receipt, "limit_rows": limit_rows}, job)
        assert f"  file: {file}\n" in capsys.readouterr().out
    show_receipt({**receipt, "passed_over": {"FIFO": {"files": 1, "names": ["pipe.txt"]}}}, job)
    assert "  passed over: 1 file; FIFO: pipe.txt\n" in capsys.readouterr().out
    show_receipt({**receipt, "left_out": ["image", "pdf"]}, job)
    assert "  columns left out: image, pdf (see sink.keep_columns)\n" in capsys.readouterr().out
