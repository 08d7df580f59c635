"""Sound files, which Python writes and reads as bytes."""

from overnight.tasks.ingest.sources.media_files import Audio
from tests.contracts.sources.whole_files import WholeFilesAdapter


class AudioFiles(WholeFilesAdapter):
    kind = "audio"
    leaf = Audio
    extension = ".wav"
    contents = (b"", b"RIFF\xff", b"no sound", bytes(range(256)))


ADAPTER = AudioFiles()
