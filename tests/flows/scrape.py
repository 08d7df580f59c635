"""Read the metrics that `overnight metrics` serves."""

import urllib.request
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from overnight.flows.metrics import start_server

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Scrape:
    """The names of all metrics, and their values by name and labels."""

    names: set[str]
    values: dict[tuple[str, Labels], float]

    def value(self, name: str, **labels: str) -> float | None:
        return self.values.get((name, tuple(sorted(labels.items()))))


def scraped(*job_files: Path) -> Scrape:
    """Serve metrics, and read them once as Prometheus does."""
    server, thread = start_server(job_files, "127.0.0.1", 0, newest=10_000)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    samples = [sample for family in families for sample in family.samples]
    values = {(found.name, tuple(sorted(found.labels.items()))): found.value for found in samples}
    return Scrape({family.name for family in families}, values)
