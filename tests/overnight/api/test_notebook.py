"""The notebook of the documentation, run cell by cell in a kernel of its own, with a Ray of its own."""

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from overnight.tasks.workers.fork_server import ADDRESS

NOTEBOOK = Path(__file__).resolve().parents[3] / "demo/notebook.ipynb"


@pytest.mark.slow
def test_the_notebook_goes_from_a_dataframe_to_a_job_file_that_runs_for_a_date(
    prefect_api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    for name in ("RAY_ADDRESS", ADDRESS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert [cell for cell in notebook.cells if cell.get("outputs")] == []
    kernel = {"resources": {"metadata": {"path": str(tmp_path)}}, "kernel_name": "python3", "timeout": 280}
    NotebookClient(notebook, **kernel).execute()
    pages = [page for cell in notebook.cells for page in pages_of(cell)]
    receipts = [page for page in pages if "<b>species/2026-11-1" in page]
    assert ["<td>150</td>" in receipts[0], "<td>50</td>" in receipts[1]] == [True, True]
    assert "<td>stale</td>" in pages[-1]
    assert "<td>published</td>" in pages[-1]
    assert not (tmp_path / "predictions/_overnight/data/2026-11-18").exists()
    shown = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ()))
    assert "source:\n  kind: parquet\n  path: flowers/{partition}/\n" in shown
    assert "Flow run" not in shown  # Prefect's own log stays away


def pages_of(cell: Any) -> list[str]:
    return [output["data"]["text/html"] for output in cell.get("outputs", ()) if "text/html" in output.get("data", {})]
