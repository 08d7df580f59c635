"""Add the current digests to the images of docker-compose.yml: `python deployments/docker/pin_images.py`.

It writes each line of `x-images` again, as `NAME:TAG@sha256:...`. The digest comes from the registry, by `docker buildx
imagetools inspect`. An image that has a digest gets the one that its tag has now.
"""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

COMPOSE_FILE = Path(__file__).resolve().parents[2] / "docker-compose.yml"
IMAGE = re.compile(r"^(  [\w-]+: &[\w-]+ )([\w./-]+:[\w.-]+)(@sha256:[0-9a-f]{64})?", re.MULTILINE)


def pinned(text: str, digest: Callable[[str], str]) -> str:
    """Return the content of a Compose file with the digest of each image in `x-images`."""
    before, begin, after = text.partition("\nx-images:\n")
    images, end, others = after.partition("\n\n")
    return before + begin + IMAGE.sub(lambda found: f"{found[1]}{found[2]}@{digest(found[2])}", images) + end + others


def digest_of(image: str) -> str:
    command = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    COMPOSE_FILE.write_text(pinned(COMPOSE_FILE.read_text(), digest_of))
