"""Check that a contender did all of the work: every row once, and results that agree with a reference.

    exact, fast, squash   images: the embeddings of `contenders/images_reference.py` for those pixels
    near                  images: a contender's own pixels, within the tolerance of `exact`
    float32, bfloat16     texts: the embeddings of the first float32 contender in this session
    chunks                documents: the chunks and embeddings of the first contender in this session
    text                  speech: the text of the first contender in this session
    score                 the table: the same model on all rows together
    rows                  a limit: no results, only the rows that it processed

The difference is the greatest over all rows. For images its unit is the typical distance from the mean of all, so that
a model with similar embeddings cannot hide a mistake. Each image must also be nearest to its own original. For texts
and chunks it is the Euclidean distance of vectors of length 1. For speech it is the share of rows with another text.
For scores it is the absolute difference.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


class Disagreement(Exception):
    """Raised when a contender missed rows, doubled rows, or has other results."""


@dataclass
class Judge:
    """Compares the results of one workload. If there is no reference, the first contender's results are it."""

    workload: str
    data: Path
    rows: int
    tolerance: dict[str, float]
    reference: Path | None = None
    first_texts: np.ndarray | None = field(default=None, repr=False)
    first_chunks: pa.Table | None = field(default=None, repr=False)
    first_said: np.ndarray | None = field(default=None, repr=False)

    def difference(self, out: Path, result: str) -> float | None:
        """Return the greatest difference, or None for a limit. Raise `Disagreement` for unexpected rows or results."""
        table = results(out)
        order = self._numbers(table)
        if not np.array_equal(np.unique(order) if result == "chunks" else np.sort(order), np.arange(self.rows)):
            found, distinct = len(order), len(np.unique(order))
            raise Disagreement(f"expected {self.rows} rows, each once, found {found}, {distinct} of them distinct")
        if result == "rows":
            return None
        if result == "score":
            worst = self._score_difference(table)
        elif result == "chunks":
            worst = self._chunk_difference(table)
        elif result == "text":
            worst = self._said_difference(table["transcription"].to_numpy()[np.argsort(order)])
        elif result in ("float32", "bfloat16"):
            worst = self._text_difference(vectors(table["embedding"])[np.argsort(order)], result)
        else:
            worst = self._image_difference(table, result)
        if not worst <= self.tolerance[result]:
            raise Disagreement(f"expected results within {self.tolerance[result]:g} of {result}, found {worst:.3g}")
        return worst

    def _numbers(self, table: pa.Table) -> np.ndarray:
        """Return the number of each row's source, from its `id` or from the name of its file."""
        if "id" in table.column_names:
            return table["id"].to_numpy()
        return np.array([int(name.split("_")[0]) for name in names(table)])

    def _image_difference(self, table: pa.Table, result: str) -> float:
        assert self.reference is not None
        reference = pq.read_table(self.reference)
        expected = vectors(reference["exact" if result == "near" else result]).astype(np.float64)
        row_of = {name: row for row, name in enumerate(reference["name"].to_pylist())}
        originals = np.array([row_of[name.partition("_")[2].rpartition(".")[0]] for name in names(table)])
        found = vectors(table["embedding"]).astype(np.float64)
        typical = np.linalg.norm(expected - expected.mean(0), axis=1).mean()
        alike, first = np.unique(found.round(3), axis=0, return_index=True)  # originals repeat, and so do results
        del alike
        distances = np.linalg.norm(found[first][:, None] - expected[None], axis=2)
        strangers = distances.argmin(1) != originals[first]
        if self.workload != "cifar" and strangers.any():
            name = names(table)[first[strangers.argmax()]]
            raise Disagreement(f"expected each row nearest to its own original, found {name} nearer to another")
        return float((np.linalg.norm(found - expected[originals], axis=1) / typical).max())

    def _text_difference(self, found: np.ndarray, result: str) -> float:
        if self.first_texts is None:
            if result != "float32":
                raise Disagreement("expected a float32 contender before the others, to compare with")
            self.first_texts = found
        return float(np.linalg.norm(found - self.first_texts, axis=1).max())

    def _chunk_difference(self, table: pa.Table) -> float:
        table = table.sort_by("row_id")
        if self.first_chunks is None:
            self.first_chunks = table
        if table["row_id"].to_pylist() != self.first_chunks["row_id"].to_pylist():
            raise Disagreement(f"expected the chunks of the first contender ({len(self.first_chunks)}), found others")
        found, first = vectors(table["embedding"]), vectors(self.first_chunks["embedding"])
        return float(np.linalg.norm(found - first, axis=1).max())

    def _said_difference(self, said: np.ndarray) -> float:
        if self.first_said is None:
            self.first_said = said
        return float((said != self.first_said).mean())

    def _score_difference(self, table: pa.Table) -> float:
        import torch

        sys.path.insert(0, str(Path(__file__).with_name("contenders")))
        from mlp import FEATURES, network  # type: ignore[import-not-found]

        features = np.stack([table[name].to_numpy() for name in FEATURES], axis=1)
        with torch.inference_mode():
            expected = network()(torch.from_numpy(features)).squeeze(1).numpy()
        return float(np.abs(table["score"].to_numpy() - expected).max())


def results(out: Path) -> pa.Table:
    """Return all rows that a contender published below `out`. Raise `Disagreement` if there are none."""
    files = [file for file in sorted(out.rglob("*.parquet")) if not hidden(file.relative_to(out))]
    tables = [pq.ParquetFile(file).read() for file in files]
    if not sum(map(len, tables)):
        raise Disagreement("expected Parquet files with rows, found none")
    return pa.concat_tables([table for table in tables if len(table)], promote_options="permissive")


def hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def names(table: pa.Table) -> list[str]:
    column = "row_id" if "row_id" in table.column_names else "path"
    return [path.rpartition("/")[2] for path in table[column].to_pylist()]


def vectors(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of lists of any type as an array of N x D."""
    array = column.combine_chunks()
    if isinstance(array, pa.ExtensionArray):  # Ray's tensors
        return np.asarray(
            array.to_numpy_ndarray() if hasattr(array, "to_numpy_ndarray") else np.stack(list(column.to_numpy()))
        )
    flat = array.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(array), -1)
