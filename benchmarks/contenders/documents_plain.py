"""Loop over the files, 64 at a time, in one process with all threads: pypdfium2 and sentence-transformers."""

from pathlib import Path

from data import Results, image_paths, settings
from documents import Embedder, chunks
from progress import note

if __name__ == "__main__":
    told, out = settings()
    embed = Embedder(told)
    results = Results(out / "results.parquet", "row_id")
    files = [Path(path) for path in image_paths(told["documents"])]
    for start in range(0, len(files), 64):
        some = files[start : start + 64]
        found = [chunk for file in some for chunk in chunks(file.name, file.read_bytes())]
        results.add([name for name, _ in found], embed([text for _, text in found]))
        note(len(some))
    results.close()
