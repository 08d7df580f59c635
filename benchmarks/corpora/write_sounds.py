"""Write a sound in every format, encoding and byte order that libsndfile knows: `python write_sounds.py FOLDER`."""

import sys
from pathlib import Path

import numpy as np

from overnight.tasks.ingest.sources.media_files import Audio

RATE, SECONDS = 16_000, 1.0
EXTENSIONS = {"WAV": "wav", "WAVEX": "wav", "RF64": "wav", "AIFF": "aiff", "AU": "au", "CAF": "caf", "FLAC": "flac",
              "OGG": "ogg", "MP3": "mp3"}  # fmt: skip


def main() -> None:
    """Write the files of one and two channels."""
    import soundfile

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    assert all(f".{extension}" in Audio.extensions for extension in EXTENSIONS.values())
    times = np.arange(round(RATE * SECONDS)) / RATE
    for name, extension in EXTENSIONS.items():
        for subtype in soundfile.available_subtypes(name):
            for endian in ("FILE", "LITTLE", "BIG"):
                for channels in (1, 2):
                    if not soundfile.check_format(name, subtype, endian):
                        continue
                    tones = [0.4 * np.sin(2 * np.pi * 220 * (n + 2) * times) for n in range(channels)]
                    file = folder / f"{name}-{subtype}-{endian}-{channels}.{extension}".lower()
                    try:
                        soundfile.write(file, np.stack(tones, 1), RATE, subtype, endian, name)
                    except soundfile.SoundFileError:  # a pair that libsndfile only reads
                        file.unlink(missing_ok=True)
    print(f"{len(list(folder.iterdir()))} files in {folder}")


if __name__ == "__main__":
    main()
