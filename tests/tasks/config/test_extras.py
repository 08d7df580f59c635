"""Without an optional library, each kind that needs it names the extra that brings it."""

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pydantic import TypeAdapter

from overnight.flows.notices.lineage import Lineage
from overnight.tasks.config.extras import EXTRAS
from overnight.tasks.duplicates.near import Near
from overnight.tasks.errors import JobError, RowError
from overnight.tasks.infer.chat.grammar import of_regex
from overnight.tasks.infer.huggingface.saved_model import GeneratingModel
from overnight.tasks.infer.kinds import AnyPredictor
from overnight.tasks.ingest.formats.tfrecord import features_of, records
from overnight.tasks.ingest.kinds import Source
from overnight.tasks.preprocess.images.decode import allow_pixels, decode_image
from overnight.tasks.preprocess.kinds import Step
from overnight.tasks.preprocess.steps.pdf_text import PdfText
from overnight.tasks.rows.image_formats import MAX_IMAGE_PIXELS
from overnight.tasks.search.ann import LanceTable
from overnight.tasks.storage.credentials import require_credentials
from overnight.tasks.storage.location import Location
from overnight.tasks.write.tables import delta, lance
from overnight.tasks.write.tables.iceberg import CatalogEntry
from overnight.tasks.write.tables.sql import engine
from tests import jobs

LEAVES: TypeAdapter[Any] = TypeAdapter(Step | AnyPredictor | Source)
FILE = __file__  # a file that is there; the libraries are missing before anything reads it


def shard(_: Path) -> None:
    settings: Any = SimpleNamespace(torch_device=lambda: "cpu", device_map="auto", weights=str, pins={})
    GeneratingModel.load_on_devices(settings, SimpleNamespace(written="some/model"), None)  # type: ignore[arg-type]


def load_static(here: Path) -> None:
    modules = [{"type": "sentence_transformers.models.StaticEmbedding", "path": ""}]
    (here / "modules.json").write_text(json.dumps(modules))
    leaf("text_embedding", model=str(here), text_column="text").load()


def decode_heif(_: Path) -> None:
    allow_pixels(MAX_IMAGE_PIXELS)
    decode_image(pa.py_buffer(b"\0\0\0\x24ftypheic" + bytes(24)), MAX_IMAGE_PIXELS)


def read_uris(_: Path) -> None:
    uris = pa.table({"uri": ["az://bucket/photo.jpg"], "size": pa.array([None], pa.int64())})
    leaf("uris", path="/in", content="bytes").contents(uris)


def send_lineage(here: Path) -> None:
    with patch.dict(os.environ, {"OPENLINEAGE_URL": "http://127.0.0.1:9"}):
        Lineage(jobs.load(here), "2026-01-01").finish({"status": "failed"})


def leaf(kind: str, **settings: Any) -> Any:
    return LEAVES.validate_python({"kind": kind, **settings})


def files(kind: str, **settings: Any) -> Callable[[Path], Any]:
    """List the files of a source, whose path is the test's folder unless the settings name another input."""
    return lambda here: list(leaf(kind, **(settings or {"path": str(here)})).files("all"))


SQL = {"url": "postgresql+psycopg://host/database", "query": "SELECT 1 AS id", "key": "id"}
MODEL = {"file": FILE, "columns": ["x"]}
# kind, settings, the libraries that they need
NAMED: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("decode_audio", {"sampling_rate": 8000}, ("av",)),
    ("pdf_text", {}, ("pypdfium2", "pikepdf")),
    ("resize_image", {"size": 8}, ()),
    ("resize_image", {"size": 8, "decode": "fast"}, ("cv2",)),
    ("sample_frames", {"every_seconds": 1}, ("av",)),
    ("split_text", {}, ("semantic_text_splitter",)),
    ("keras", MODEL, ("keras",)),
    ("keras", {**MODEL, "backend": "jax"}, ("keras", "jax")),
    ("onnx", MODEL, ("onnxruntime",)),
    ("sklearn", MODEL, ("sklearn", "joblib", "pandas")),
    ("text_generation", {"model": "m", "text_column": "x", "num_gpus": 1}, ()),
    ("chat", {"model": "m", "user": "{x}", "output_schema": {}, "constrain": True}, ("llguidance",)),
    ("chat", {"model": "m", "user": "{x}", "answer": {"choices": ["a"]}}, ("llguidance",)),
    ("openai", {"model": "m", "user": "{x}", "answer": {"choices": ["a"]}}, ()),
    ("vllm", {"model": "m", "user": "{x}", "answer": {"regex": "a"}}, ("llguidance",)),
    ("text_generation", {"model": "m", "text_column": "x", "num_gpus": 1, "device_map": "auto"}, ("accelerate",)),
]


def test_a_leaf_names_before_a_run_the_libraries_that_its_settings_need() -> None:
    for kind, settings, libraries in NAMED:
        assert sorted(leaf(kind, **settings).libraries()) == sorted(libraries)


def build(kind: str, **settings: Any) -> Callable[[Path], Any]:
    return lambda _: leaf(kind, **settings).build()


def load(kind: str, **settings: Any) -> Callable[[Path], Any]:
    return lambda _: leaf(kind, **settings).load()


def open_catalog(here: Path) -> None:
    CatalogEntry(f"sqlite:///{here}/c.db", "c", "t", Location(str(here))).catalog()


# library, kind, stage, what needs the library
CASES: list[tuple[str, str, str, Callable[[Path], Any]]] = [
    ("accelerate", "device_map", "infer", shard),
    ("adlfs", "az://", "plan", lambda _: Location("az://bucket/in").open_filesystem()),
    ("adlfs", "az://", "ingest", read_uris),
    ("av", "decode_audio", "preprocess", build("decode_audio")),
    ("av", "sample_frames", "preprocess", build("sample_frames", every_seconds=1)),
    ("azure", "abfss://", "plan", lambda _: require_credentials("abfss")),
    ("cv2", "resize_image, decode: fast", "preprocess", build("resize_image", size=8, decode="fast")),
    ("datasketch", "deduplicate: near, of texts", "preprocess", lambda _: Near("x", 0.8).keys(pa.table({"x": ["a"]}))),
    ("deltalake", "sink.kind: delta", "write", lambda here: delta.open_table(Location(str(here)))),
    ("deltalake", "source.kind: delta", "ingest", files("delta")),
    ("gcsfs", "gcs://", "plan", lambda _: Location("gcs://bucket/in").open_filesystem()),
    ("google.protobuf", "tfrecord", "ingest", lambda _: features_of(b"")),
    ("google_crc32c", "tfrecord", "ingest", lambda _: list(records(io.BytesIO(bytes(12)), 100))),
    ("jax", "backend: jax", "infer", load("keras", **MODEL, backend="jax")),
    ("joblib", "kind: sklearn", "infer", load("sklearn", **MODEL)),
    ("keras", "kind: keras", "infer", load("keras", **MODEL)),
    ("lance", "sink.kind: lance", "write", lambda here: lance.open_table(Location(str(here)))),
    ("lance", "source.kind: lance", "ingest", files("lance")),
    ("lance", "search", "plan", lambda here: LanceTable(Location(str(here)), None).dataset),
    ("llguidance", "answer.regex", "infer", lambda _: of_regex("a").fits("a")),
    ("onnxruntime", "kind: onnx", "infer", load("onnx", **MODEL)),
    ("openlineage", "OPENLINEAGE_URL", "plan", send_lineage),
    ("pandas", "kind: sklearn", "infer", load("sklearn", **MODEL)),
    ("pikepdf", "pdf_text", "preprocess", build("pdf_text")),
    ("pillow_heif", "HEIF", "preprocess", decode_heif),
    ("psycopg", "postgresql+psycopg://", "write", lambda _: engine("postgresql+psycopg://host/database")),
    ("psycopg", "postgresql+psycopg://", "ingest", files("sql", **SQL)),
    ("pyiceberg", "sink.kind: iceberg", "write", open_catalog),
    ("pyiceberg", "source.kind: iceberg", "ingest", files("iceberg", table="a.b")),
    ("pypdfium2", "pdf_text", "preprocess", build("pdf_text")),
    ("semantic_text_splitter", "split_text", "preprocess", build("split_text")),
    ("sentence_transformers", "modules.json names the steps StaticEmbedding", "infer", load_static),
    ("sklearn", "kind: sklearn", "infer", load("sklearn", **MODEL)),
]


def test_every_optional_library_has_a_case() -> None:
    assert {library for library, *_ in CASES} == set(EXTRAS)


@pytest.mark.parametrize(("library", "kind", "stage", "use"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_without_the_library_the_kind_names_its_extra(
    library: str, kind: str, stage: str, use: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    with pytest.raises(JobError) as raised:
        use(tmp_path)
    message = str(raised.value)
    assert kind in message
    assert f"expected the library {library} where the job runs, found " in message
    assert message.endswith(f"pip install 'overnight[{EXTRAS[library]}]'")
    assert raised.value.stage == stage


def test_a_library_that_breaks_while_it_is_imported_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pypdfium2.py").write_text("import no_such_driver")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pypdfium2", raising=False)
    with pytest.raises(JobError, match="found No module named 'no_such_driver'"):
        PdfText().build()


def test_a_driver_that_no_extra_brings_is_named_by_itself() -> None:
    with pytest.raises(JobError, match=r"expected the library pg8000 .* pip install pg8000$"):
        engine("postgresql+pg8000://host/database")


def test_without_pillow_heif_other_images_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    allow_pixels(MAX_IMAGE_PIXELS)
    with pytest.raises(RowError):  # a video is no HEIF image: its row fails alone
        decode_image(pa.py_buffer(b"\0\0\0\x24ftypisom" + bytes(24)), MAX_IMAGE_PIXELS)
    for kind in ("AVIF", "JPEG", "PNG"):
        written = io.BytesIO()
        Image.fromarray(np.full((8, 10, 3), 77, np.uint8)).save(written, kind)
        decoded = decode_image(pa.py_buffer(written.getvalue()), MAX_IMAGE_PIXELS)
        assert decoded.shape == (8, 10, 3)
        assert abs(int(decoded.mean()) - 77) <= 2
