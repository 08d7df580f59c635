"""Metrics for Prometheus of partitions, workers and waiting runs. `overnight metrics` serves them.

Every scrape reads the job files, their ledgers and the Prefect server, and keeps nothing. Prefect's own metrics, at
/api/metrics, have no worker and no run (Prefect 3.9). `docs/operations/metrics.md` lists the metrics.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Thread
from wsgiref.simple_server import WSGIServer

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import temporary_settings
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from overnight.flows.batch_inference import batch_inference
from overnight.flows.deploy.deployments import deployed_flows
from overnight.flows.deploy.server_state import read_deployments
from overnight.flows.doctor.next_runs import online_workers
from overnight.flows.job.loading import load_job
from overnight.flows.ledger.late_runs import late_runs
from overnight.flows.ledger.partition_status import STATUSES, read_ledger
from overnight.flows.runs.local_server import client_settings, known_server
from overnight.flows.schedule.deadlines import deadline_of
from overnight.tasks.errors import JobError, OvernightError

COUNTS = {
    "rows_in": "Rows read, by the newest receipt.",
    "rows_out": "Rows published, by the newest receipt.",
    "rows_quarantined": "Rows quarantined, by the newest receipt.",
}


def start_server(job_paths: Sequence[Path], host: str, port: int, newest: int) -> tuple[WSGIServer, Thread]:
    """Serve the metrics of each job's `newest` partitions in a thread, and return the HTTP server and the thread."""
    url = known_server()
    if not (job_paths or url):
        raise JobError("expected job files or PREFECT_API_URL, found neither. Name the jobs, or set it to a server.")
    registry = CollectorRegistry()
    registry.register(_Scrape(job_paths, url, newest))
    try:
        return start_http_server(port, host, registry)
    except OSError as error:
        raise OvernightError(f"expected to listen on {host}:{port}, found: {error}. Choose another --port.") from None


class _Scrape(Collector):
    def __init__(self, job_paths: Sequence[Path], url: str | None, newest: int) -> None:
        self.job_paths, self.url, self.newest = job_paths, url, newest
        self._lock = Lock()

    def collect(self) -> Iterator[Metric]:
        """Return all metrics. An error, such as a server that is away, becomes the answer 500 to the scrape."""
        with self._lock:  # the load of a job decides how this process reaches S3
            return iter(list(self._metrics()))

    def _metrics(self) -> Iterator[Metric]:
        paths, now = set(self.job_paths), datetime.now(UTC)
        if self.url:
            with temporary_settings(client_settings(self.url)), get_client(sync_client=True) as client:
                deployments = read_deployments(client, {batch_inference.name}).values()
                paths = paths or {Path(deployment.parameters["job"]) for deployment in deployments}
                yield from _server_metrics(client, {deployment.work_pool_name for deployment in deployments})
        yield from _partition_metrics(sorted(paths), self.newest, now)


def _server_metrics(client: SyncPrefectClient, pools: Iterable[str | None]) -> Iterator[Metric]:
    workers = GaugeMetricFamily("overnight_workers_online", "Workers that poll the pool.", labels=["work_pool"])
    late = GaugeMetricFamily("overnight_runs_late", "Runs that should have started.", labels=["work_queue"])
    waiting = Counter(run.work_queue_name or "no queue" for run in late_runs(client, deployed_flows()))
    for pool in filter(None, pools):
        workers.add_metric([pool], len(online_workers(client, pool)))
        waiting.update({queue.name: 0 for queue in client.read_work_queues(work_pool_name=pool)})
    for queue, number in waiting.items():
        late.add_metric([queue], number)
    yield from (workers, late)


def _gauge(name: str, text: str, *more_labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"overnight_partition_{name}", text, labels=["job", "partition", *more_labels])


def _partition_metrics(job_paths: Iterable[Path], newest: int, now: datetime) -> Iterator[Metric]:
    readable = GaugeMetricFamily("overnight_job_readable", "1: the ledger could be read.", labels=["file"])
    statuses = _gauge("status", "1: the partition has the status.", "status")
    late = _gauge("late", "1: its deadline passed and it is not published.")
    times = _gauge("published_timestamp_seconds", "The time of the newest receipt.")
    counts = {name: _gauge(name, text) for name, text in COUNTS.items()}
    for path in job_paths:
        try:
            job = load_job(path)
            entries = read_ledger(job, now=now, newest=newest)
        except OvernightError as error:
            logging.getLogger(__name__).warning("%s: %s", path, error)
            readable.add_metric([str(path)], 0)
            continue
        readable.add_metric([str(path)], 1)
        for entry in entries:
            labels = [job.name, entry.partition]
            for status in STATUSES:
                statuses.add_metric([*labels, status], status == entry.status)
            if job.schedule and job.schedule.deadline:
                due = deadline_of(job, entry.partition, now)
                late.add_metric(labels, not entry.receipt and due.deadline <= now)
            if entry.receipt:
                times.add_metric(labels, datetime.fromisoformat(entry.receipt["finished_at"]).timestamp())
                for name, family in counts.items():
                    family.add_metric(labels, entry.receipt[name])
    yield from (readable, statuses, late, times, *counts.values())
