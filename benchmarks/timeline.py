"""Draw when each worker of a cluster read, prepared and computed: `python benchmarks/timeline.py [--record FILE]`.

It runs a job on a Ray cluster of a head without CPUs and two nodes, each with two CPUs and a declared GPU: embeddings
of JPEG files by a small CLIP model with random weights. No real GPU is needed, because `cpu_fallback` lets the model
compute on a CPU. The times of the stages come from the receipt, and those of the workers from `ray.timeline()`. The
picture is `docs/_static/timeline.svg`. `--record` keeps its numbers as JSON. If that file exists, only the picture is
drawn.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from made_photos import write_clip, write_photo
from ray_cluster import HEAD, cluster

IMAGES = 4800
NODES = 2
PICTURE = Path(__file__).resolve().parents[1] / "docs/_static/timeline.svg"
# A call of a Ray worker belongs to the first of these whose part its name contains. Ray Data names a call after the
# stages of its segment; a read begins with `Read`, and the workers of models are actors (`MapWorker`).
WORK = {
    "write": ("write_part",),
    "load": (")).__init__",),
    "infer": (")).submit",),
    "read and preprocess": ("Read", "preprocess)"),
}
# Readable on a white and on a black page.
BLUE, GREEN, LIGHT_GREEN, RED, GREY = "#2f6fb7", "#2e7d4f", "#8fbf9f", "#b0452f", "#8a8f98"
COLOURS = {"infer": GREEN, "load": LIGHT_GREEN, "write": RED}
LEFT, WIDTH, LANE = 210, 760, 26


def make_inputs(folder: Path) -> None:
    """Write the JPEG files, the model and the job to `folder`."""
    import numpy as np

    (folder / "images").mkdir(parents=True)
    random = np.random.default_rng(0)
    for number in range(IMAGES):
        write_photo(folder / f"images/{number:04d}.jpg", random)
    write_clip(folder / "clip", width=128, layers=3)
    job = {
        "name": "timeline",
        "source": {"kind": "images", "path": str(folder / "images")},
        "preprocess": [{"kind": "resize_image", "size": 224}],
        "inference": [
            {
                "kind": "image_embedding",
                "model": str(folder / "clip"),
                "num_gpus": 1,
                "cpu_fallback": True,
                "placement": "separate",
                "batch_size": 16,
            }
        ],
        "sink": {"kind": "parquet", "path": str(folder / "out"), "rows_per_part": 100},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))


def run_job(folder: Path) -> dict[str, Any]:
    """Run the job on a new cluster, and return the record for `draw`."""
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "PREFECT_HOME": str(folder / "prefect")}
    run = [sys.executable, "-c", "from overnight.cli.main import main; main()", "run", "job.yaml", "--json"]
    read = (
        "import json, ray, sys\n"
        "ray.init(sys.argv[1], logging_level='ERROR', log_to_driver=False)\n"
        "print(json.dumps(ray.timeline()))\n"
    )
    options = ["--num-cpus=2", "--num-gpus=1"]
    with cluster(folder, NODES, options) as address, open(folder / "run.log", "w") as log:
        environment["RAY_ADDRESS"] = address
        done = subprocess.run(run, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, check=False)
        if done.returncode:
            raise SystemExit((folder / "run.log").read_text()[-3000:])
        timeline = [sys.executable, "-c", read, address]
        calls = subprocess.run(timeline, env=environment, stdout=subprocess.PIPE, check=True)
    return record(json.loads(done.stdout), json.loads(calls.stdout))


def record(receipt: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the seconds, since the run began, of its stages and of the calls of its workers.

    `stages` has (start, stop) by stage. `nodes` has, by the address of a node, a list of workers. A worker is a list of
    its calls as (work, start, stop). `calls` are the events of `ray.timeline()`, in microseconds.
    """
    began = datetime.fromisoformat(receipt["started_at"]).timestamp()

    def seconds(moment: str) -> float:
        return round(datetime.fromisoformat(moment).timestamp() - began, 3)

    stages = {
        name: [seconds(found["started_at"]), seconds(found["finished_at"])]
        for name, found in receipt["stages"].items()
        if found["started_at"]
    }
    workers: dict[tuple[str, str], list[list[Any]]] = {}
    for call in sorted(calls, key=lambda call: call["ts"]):
        work = next((work for work, parts in WORK.items() if any(part in call["cat"] for part in parts)), None)
        if work and call["cat"].startswith("task::"):
            start = round(call["ts"] / 1e6 - began, 3)
            stop = round(start + call["dur"] / 1e6, 3)
            workers.setdefault((call["pid"], call["tid"]), []).append([work, start, stop])
    nodes: dict[str, list[Any]] = {}
    for (node, _), its_calls in sorted(workers.items()):
        nodes.setdefault(node, []).append(its_calls)
    return {"stages": stages, "nodes": nodes}


def writers_together(lanes: Sequence[list[Any]]) -> list[list[Any]]:
    """Return the lanes, with the writers in one lane, the last: a part has a process of its own."""
    others, writes = [], []
    for calls in lanes:
        if {work for work, *_ in calls} == {"write"} and len(lanes) > 1:
            writes += calls
        else:
            others.append(calls)
    return [*others, writes] if writes else others


def draw(found: Mapping[str, Any]) -> str:
    """Return the picture of a record as SVG: a lane for each stage, for each worker of a node, and for its writers."""
    groups: dict[str, list[list[Any]]] = {"stages": [[[name, *times]] for name, times in found["stages"].items()]}
    others = [address for address in found["nodes"] if address != HEAD]
    groups |= {f"node {number}": found["nodes"][address] for number, address in enumerate(others, 1)}
    groups |= {"head": found["nodes"][HEAD]} if HEAD in found["nodes"] else {}
    last = max(stop for lanes in groups.values() for calls in lanes for _, _, stop in calls)
    scale = (WIDTH - LEFT - 10) / last
    shapes, top = [], 34
    for group, lanes in groups.items():
        shapes.append(f'<text x="8" y="{top + 20}" font-weight="bold" fill="{GREY}">{group}</text>')
        top += LANE
        for calls in lanes if group == "stages" else writers_together(lanes):
            name = ", ".join(dict.fromkeys(work for work, *_ in calls))
            shapes.append(f'<text x="8" y="{top + 18}" fill="{GREY}">{name}</text>')
            for work, start, stop in calls:
                x, width = LEFT + start * scale, max((stop - start) * scale, 0.5)
                place = f'x="{x:.1f}" y="{top + 4}" width="{width:.1f}" height="{LANE - 8}"'
                shapes.append(f'<rect {place} fill="{COLOURS.get(work, BLUE)}"/>')
            top += LANE
    step = next(step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600) if last / step <= 8)
    for second in range(0, int(last) + 1, step):
        x = LEFT + second * scale
        shapes.append(f'<path d="M{x:.1f} 30 V{top}" stroke="{GREY}" stroke-width="0.5"/>')
        shapes.append(f'<text x="{x:.1f}" y="22" text-anchor="middle" fill="{GREY}">{second} s</text>')
    words = f"{len(found['stages'])} stages and the workers of {len(found['nodes'])} nodes over {last:.0f} seconds."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 8}" role="img"',
            "     aria-labelledby=\"title words\" font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\"",
            '     font-size="14">',
            '  <title id="title">When each worker of a run worked</title>',
            f'  <desc id="words">{words}</desc>',
            *(f"  {shape}" for shape in shapes),
            "</svg>\n",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, help="The file of the picture's numbers.")
    arguments = parser.parse_args()
    if arguments.record and arguments.record.exists():
        PICTURE.write_text(draw(json.loads(arguments.record.read_text())))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that what was started ends, too
    with tempfile.TemporaryDirectory(prefix="timeline-") as name:
        folder = Path(name)
        make_inputs(folder)
        try:
            found = run_job(folder)
        finally:
            stop = [sys.executable, "-m", "prefect", "server", "stop"]
            environment = {**os.environ, "PREFECT_HOME": str(folder / "prefect")}
            subprocess.run(stop, check=False, env=environment, capture_output=True)
    if arguments.record:
        arguments.record.write_text(json.dumps(found))
    PICTURE.write_text(draw(found))


if __name__ == "__main__":
    main()
