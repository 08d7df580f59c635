"""Video files, which Python writes and reads as bytes."""

from overnight.tasks.ingest.sources.media_files import Video
from tests.contracts.sources.whole_files import WholeFilesAdapter


class VideoFiles(WholeFilesAdapter):
    kind = "video"
    leaf = Video
    extension = ".mp4"
    contents = (b"", b"\0\0\0 ftyp", b"no video", bytes(range(256)))


ADAPTER = VideoFiles()
