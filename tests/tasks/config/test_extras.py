"""Without an optional library, each kind that needs it names the extra that brings it."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from overnight.tasks.config.extras import EXTRAS
from overnight.tasks.duplicates.near import Near
from overnight.tasks.errors import JobError, RowError
from overnight.tasks.infer.huggingface.device_map import load_on_devices
from overnight.tasks.infer.models.keras import KerasModel
from overnight.tasks.infer.models.onnx import OnnxModel
from overnight.tasks.infer.models.sklearn import SklearnModel
from overnight.tasks.infer.models.text_embedding import TextEmbedding
from overnight.tasks.infer.models.text_generation import TextGeneration
from overnight.tasks.infer.predictor import Predictor
from overnight.tasks.ingest.formats.tf_example import features_of
from overnight.tasks.ingest.formats.tfrecord import records
from overnight.tasks.ingest.sources.delta import Delta
from overnight.tasks.ingest.sources.iceberg import Iceberg
from overnight.tasks.ingest.sources.lance import Lance
from overnight.tasks.ingest.sources.sql import Sql
from overnight.tasks.ingest.sources.uris import Uris
from overnight.tasks.preprocess.images.decode import MAX_IMAGE_PIXELS, allow_pixels, decode_image
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.preprocess.steps.decode_audio import DecodeAudio
from overnight.tasks.preprocess.steps.pdf_text import PdfText
from overnight.tasks.preprocess.steps.resize_image import ResizeImage
from overnight.tasks.preprocess.steps.sample_frames import SampleFrames
from overnight.tasks.preprocess.steps.split_text import SplitText
from overnight.tasks.search.published_rows import newest_version
from overnight.tasks.storage.credentials import require_credentials
from overnight.tasks.storage.location import Location
from overnight.tasks.write.tables import delta, lance
from overnight.tasks.write.tables.database import engine
from overnight.tasks.write.tables.iceberg import Opened

FILE = __file__  # a file that is there; the libraries are missing before anything reads it


def shard(_: Path) -> None:
    settings: Any = SimpleNamespace(torch_device=lambda: "cpu", device_map="auto", max_memory=None, dtype=None)
    load_on_devices(SimpleNamespace(written="some/model"), None, settings)  # type: ignore[arg-type]


def load_static(here: Path) -> None:
    modules = [{"type": "sentence_transformers.models.StaticEmbedding", "path": ""}]
    (here / "modules.json").write_text(json.dumps(modules))
    TextEmbedding(model=str(here), text_column="text").load()


def decode_heif(_: Path) -> None:
    allow_pixels(MAX_IMAGE_PIXELS)
    decode_image(pa.py_buffer(b"\0\0\0\x24ftypheic" + bytes(24)), MAX_IMAGE_PIXELS)


read_sql = Sql(url="postgresql+psycopg://host/database", query="SELECT 1 AS id", key="id")


def read_uris(_: Path) -> None:
    Uris(path="/in", content="bytes").contents(
        pa.table({"uri": ["az://bucket/photo.jpg"], "size": pa.array([None], pa.int64())})
    )


AUTO = TextGeneration(model="m", text_column="x", num_gpus=1, device_map="auto")
LEAVES: list[tuple[PreprocessStep | Predictor, tuple[str, ...]]] = [
    (DecodeAudio(sampling_rate=8000), ("av",)),
    (KerasModel(file=FILE, columns=["x"]), ("keras",)),
    (KerasModel(file=FILE, columns=["x"], backend="jax"), ("keras", "jax")),
    (OnnxModel(file=FILE, columns=["x"]), ("onnxruntime",)),
    (PdfText(), ("pypdfium2", "pikepdf")),
    (ResizeImage(size=8), ()),
    (ResizeImage(size=8, decode="fast"), ("cv2",)),
    (SampleFrames(every_seconds=1), ("av",)),
    (SklearnModel(file=FILE, columns=["x"]), ("sklearn", "joblib", "pandas")),
    (SplitText(), ("semantic_text_splitter",)),
]


def use(leaf: PreprocessStep | Predictor) -> Any:
    return leaf.build() if isinstance(leaf, PreprocessStep) else leaf.load()


def leaf_stage(leaf: PreprocessStep | Predictor) -> str:
    return "preprocess" if isinstance(leaf, PreprocessStep) else "infer"


# library and what the message names -> the first of the leaves that needs it
NEEDS = {
    (library, "backend: jax" if library == "jax" else leaf.kind): leaf
    for leaf, libraries in reversed(LEAVES)
    for library in libraries
}

# library, kind, stage, what needs the library
CASES: list[tuple[str, str, str, Callable[[Path], Any]]] = [
    ("accelerate", "device_map", "infer", shard),
    ("adlfs", "az://", "plan", lambda _: Location("az://bucket/in").open_filesystem()),
    ("adlfs", "az://", "ingest", read_uris),
    ("azure", "abfss://", "plan", lambda _: require_credentials("abfss")),
    ("datasketch", "deduplicate: near, of texts", "preprocess", lambda _: Near("x", 0.8).keys(pa.table({"x": ["a"]}))),
    ("deltalake", "sink.kind: delta", "write", lambda here: delta.open_table(Location(str(here)))),
    ("deltalake", "source.kind: delta", "ingest", lambda here: list(Delta(path=str(here)).files("all"))),
    ("gcsfs", "gcs://", "plan", lambda _: Location("gcs://bucket/in").open_filesystem()),
    ("google.protobuf", "tfrecord", "ingest", lambda _: features_of(b"")),
    ("google_crc32c", "tfrecord", "ingest", lambda _: list(records(io.BytesIO(bytes(12)), 100))),
    ("lance", "sink.kind: lance", "write", lambda here: lance.open_table(Location(str(here)))),
    ("lance", "source.kind: lance", "ingest", lambda here: list(Lance(path=str(here)).files("all"))),
    ("lance", "search", "plan", lambda here: newest_version(Location(str(here)))),
    ("pillow_heif", "HEIF", "preprocess", decode_heif),
    ("psycopg", "postgresql+psycopg://", "write", lambda _: engine("postgresql+psycopg://host/database")),
    ("psycopg", "postgresql+psycopg://", "ingest", lambda _: list(read_sql.files("all"))),
    ("pyiceberg", "sink.kind: iceberg", "write", lambda here: Opened(f"sqlite:///{here}/c.db", "c", "t").catalog()),
    ("pyiceberg", "source.kind: iceberg", "ingest", lambda _: list(Iceberg(table="a.b").files("all"))),
    ("sentence_transformers", "modules.json names the steps StaticEmbedding", "infer", load_static),
    *((library, kind, leaf_stage(leaf), lambda _, leaf=leaf: use(leaf)) for (library, kind), leaf in NEEDS.items()),
]


def test_every_optional_library_has_a_case() -> None:
    assert {library for library, *_ in CASES} == set(EXTRAS)


def test_a_leaf_names_before_a_run_the_libraries_that_its_settings_need() -> None:
    for leaf, libraries in [*LEAVES, (AUTO, ("accelerate",)), (AUTO.model_copy(update={"device_map": None}), ())]:
        assert sorted(leaf.libraries()) == sorted(libraries)


@pytest.mark.parametrize(("library", "kind", "stage", "use"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_without_the_library_the_kind_names_its_extra(
    library: str,
    kind: str,
    stage: str,
    use: Callable[[Path], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
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
