"""Loop over the files, 16 at a time, in one process with all threads: PyAV and transformers."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from data import image_paths, settings
from progress import note
from speech import Whisper, decoded

if __name__ == "__main__":
    told, out = settings()
    whisper = Whisper(told)
    files = image_paths(told["sounds"])
    texts: list[str] = []
    for start in range(0, len(files), 16):
        some = files[start : start + 16]
        texts += whisper([decoded(Path(file).read_bytes()) for file in some])
        note(len(some))
    pq.write_table(pa.table({"path": files, "transcription": texts}), out / "results.parquet")
