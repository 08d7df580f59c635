"""The health check of the Compose file's Prefect services, against a real PostgreSQL."""

import asyncio
import runpy
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
from prefect.server.database.orm_models import FlowRun

SCRIPT = Path(__file__).resolve().parents[2] / "deployments/docker/services_health.py"
TABLE = """
    CREATE TYPE state_type AS ENUM ('SCHEDULED', 'RUNNING');
    CREATE TABLE flow_run (state_type state_type, state_name text, next_scheduled_start_time timestamptz)"""
DUE = "INSERT INTO flow_run VALUES ('SCHEDULED', $1, now() - interval '3 minutes')"


def test_services_are_healthy_while_they_ask_the_database_and_mark_late_runs(postgres: str) -> None:
    problem: Callable[..., Awaitable[str]] = runpy.run_path(str(SCRIPT))["problem"]

    async def look() -> list[str]:
        owner = await asyncpg.connect(database="postgres")
        await owner.execute("CREATE DATABASE health")
        watched = await asyncpg.connect(database="health")
        await watched.execute(TABLE)
        found = [await problem(database="health")]
        services = await asyncpg.connect(database="health", server_settings={"application_name": "prefect-services"})
        await services.fetchval("SELECT 1")
        found.append(await problem(database="health"))
        await watched.execute(DUE, "Late")
        found.append(await problem(database="health"))
        await watched.execute(DUE, "Scheduled")
        found.append(await problem(database="health"))
        for connection in (services, watched):
            await connection.close()
        await owner.execute("DROP DATABASE health")
        await owner.close()
        return found

    silent, asks, marked, unmarked = asyncio.run(look())
    assert silent == "expected a query of the services within 60 s, found none"
    assert (asks, marked) == ("", "")
    assert unmarked == "expected late runs to be marked, found 1 that were due 120 s ago"


def test_prefect_keeps_what_the_health_check_reads_in_these_columns() -> None:
    assert {"state_type", "state_name", "next_scheduled_start_time"} <= {*FlowRun.__table__.columns.keys()}
    assert FlowRun.__tablename__ == "flow_run"
