"""Libraries that only one kind of source, step, model or sink needs: each comes with an extra of the package.

`EXTRAS` maps each library, by its import name, to its extra. pyproject.toml lists the same extras.
"""

import importlib
import importlib.util
from types import ModuleType

from overnight.tasks.errors import JobError

EXTRAS = {
    "accelerate": "sharding",
    "adlfs": "azure",
    "av": "media",
    "azure": "azure",
    "cv2": "fast-decode",
    "datasketch": "near-texts",
    "deltalake": "delta",
    "gcsfs": "gcs",
    "google.protobuf": "tfrecord",
    "google_crc32c": "tfrecord",
    "jax": "jax",
    "joblib": "sklearn",
    "keras": "keras",
    "lance": "lance",
    "llguidance": "structured",
    "onnxruntime": "onnx",
    "openlineage": "openlineage",
    "pandas": "sklearn",
    "pikepdf": "pdf",
    "pillow_heif": "heif",
    "psycopg": "postgresql",
    "pyiceberg": "iceberg",
    "pypdfium2": "pdf",
    "semantic_text_splitter": "split",
    "sentence_transformers": "sentences",
    "sklearn": "sklearn",
}


def require_extra(module: str, needed_by: str, stage: str | None = None) -> ModuleType:
    """Import an optional library and return it. Otherwise raise the error of `missing`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(module, needed_by, stage, str(error)) from error


def require_installed(module: str, needed_by: str) -> None:
    """Raise `JobError` as `require_extra` does if a library is not installed. Do not import it."""
    if importlib.util.find_spec(module) is None:
        raise missing(module, needed_by)


def missing(module: str, needed_by: str, stage: str | None = None, found: str = "none") -> JobError:
    """Return the error for a library that is not installed, with the extra that brings it.

    `needed_by` is as the job file writes it, such as `sink.kind: delta`. `found` is what an import raised.
    """
    package = f"'overnight[{EXTRAS[module]}]'" if module in EXTRAS else module
    return JobError(
        f"{needed_by}: expected the library {module} where the job runs, found {found}. "
        f"Install it on every machine that runs the job: pip install {package}",
        stage,
    )
