"""Make the pictures of pages in docs/_static by Chromium: `python docs/pictures.py`, after `make demo`.

Two days of the demo's digits run with its model, and one with damaged weights. So the pages have a regression.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml
from PIL import Image
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / ".demo"
FOLDER = DEMO / "pictures"
REPORT = DEMO / "predictions/digits/_overnight/date=2026-11-19/report.html"
JOB = ROOT / "deployments/jobs/digits.yaml"
DAYS = ("2026-11-17", "2026-11-18", "2026-11-19")
HEIGHTS = {"report": 1180, "history": 1120, "compare": 1120}  # pixels
WIDTH, COLOURS = 1240, 64


def make_pages() -> Mapping[str, Path]:
    """Run three days and a comparison. Return the files of the pages by the names of their pictures."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(DEMO / "model", FOLDER / "damaged")
    weights = load_file(FOLDER / "damaged/model.safetensors")
    for name, tensor in weights.items():
        if tensor.ndim > 1:
            weights[name] = (tensor * 6).round() / 6
    save_file(weights, FOLDER / "damaged/model.safetensors", {"format": "pt"})
    job = yaml.safe_load(JOB.read_text())
    job["sink"]["path"] = "predictions"
    (FOLDER / "digits.yaml").write_text(yaml.safe_dump(job))
    damage = ["--set", "inference.0.model=damaged"]
    for day in DAYS:
        changes = damage if day == DAYS[-1] else []
        overnight("run", "digits.yaml", "--partition", day, *changes)
    overnight("compare", "digits.yaml", "--partition", DAYS[-1], *damage, "--html", "compare.html")
    overnight("site", ".")
    [history] = (FOLDER / "_overnight_site").glob("digits-*.html")
    return {"report": REPORT, "history": history, "compare": FOLDER / "compare.html"}


def overnight(*arguments: str) -> None:
    """Run a command of Overnight in `FOLDER`, so that pages have short paths, with the demo's server."""
    variables = {"OVERNIGHT_DEMO": str(DEMO), "PREFECT_HOME": str(DEMO / "prefect")}
    command = [str(Path(sys.executable).with_name("overnight")), *arguments]
    subprocess.run(command, check=True, cwd=FOLDER, env={**os.environ, **variables})


def make_picture(page: Path, picture: Path, height: int) -> None:
    """Write the top of a page as a PNG of few colours."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not browser:
        sys.exit("expected Chromium or Chrome on the PATH, found neither: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        screenshot, copy = Path(folder) / "page.png", Path(folder) / "page.html"
        copy.write_text(page.read_text().replace(f"{ROOT}/", ""))  # the folder of the checkout is in no picture
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/home"]
        size = [f"--window-size={WIDTH},{height}", "--blink-settings=preferredColorScheme=1"]
        command = [browser, *options, *size, f"--screenshot={screenshot}", copy.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        Image.open(screenshot).convert("RGB").quantize(COLOURS).save(picture, optimize=True)


if __name__ == "__main__":
    for name, page in make_pages().items():
        make_picture(page, ROOT / f"docs/_static/{name}.png", HEIGHTS[name])
