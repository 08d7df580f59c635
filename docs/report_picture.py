"""Make docs/_static/report.png, the top of the demo's report, by Chromium: `python docs/report_picture.py [REPORT]`."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / ".demo/predictions/digits/_overnight/date=2026-11-19/report.html"
WIDTH, HEIGHT, COLOURS = 1240, 1180, 64


def make_picture(report: Path, picture: Path) -> None:
    """Write the top of a page as a PNG of few colours."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not browser:
        sys.exit("expected Chromium or Chrome on the PATH, found neither: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        screenshot = Path(folder) / "report.png"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/home"]
        size = [f"--window-size={WIDTH},{HEIGHT}", "--blink-settings=preferredColorScheme=1"]
        command = [browser, *options, *size, f"--screenshot={screenshot}", report.resolve().as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        Image.open(screenshot).convert("RGB").quantize(COLOURS).save(picture, optimize=True)


if __name__ == "__main__":
    make_picture(Path(sys.argv[1]) if len(sys.argv) > 1 else REPORT, ROOT / "docs/_static/report.png")
