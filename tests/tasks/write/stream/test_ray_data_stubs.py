"""Ray Data makes no actors of its own for a stream within `stand_ins`, and the same rows come out of it."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
CODE = """
    import contextlib
    import json
    import ray
    from ray.util import list_named_actors
    from overnight.tasks.write.stream.ray_data_stubs import stand_ins

    class Twice:
        def __call__(self, batch):
            return {{"id": batch["id"] * 2}}

    ray.init("local", include_dashboard=False, log_to_driver=False, num_cpus=2, _temp_dir={folder!r})
    with stand_ins() if {stands_in} else contextlib.nullcontext():
        for _ in range(2):
            numbers = ray.data.range(40, override_num_blocks=8).map_batches(Twice, concurrency=(1, 2))
            numbers.write_parquet({folder!r} + "/out", mode="overwrite")
    actors = sorted(actor["name"] for actor in list_named_actors(all_namespaces=True))
    rows = sorted(row["id"] for row in ray.data.read_parquet({folder!r} + "/out").take_all())
    print(json.dumps([actors, rows]))
"""


def streamed(stands_in: bool) -> tuple[list[str], list[int]]:
    """The named actors there are after two streams of Ray Data's, in a Ray of its own, and the rows that they wrote."""
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # short, for the paths of sockets
        command = [sys.executable, "-c", textwrap.dedent(CODE).format(folder=folder, stands_in=stands_in)]
        found = subprocess.run(
            command, cwd=ROOT, env=inherited, stdout=subprocess.PIPE, text=True, check=True, timeout=120
        )
    actors, rows = json.loads(found.stdout.splitlines()[-1])
    return actors, rows


@pytest.mark.slow
def test_a_stream_makes_no_actors_but_its_workers() -> None:
    as_ray_does, rows = streamed(stands_in=False)
    assert len(as_ray_does) == 3
    assert streamed(stands_in=True) == ([], rows)
    assert rows == list(range(0, 80, 2))
