"""Check that Prefect's services run: exit with 1 and a sentence if they do not. The container's health check calls it.

The services have no port. Their loops read the database every few seconds, under the name `prefect-services`. A loop
marks each run as Late that has not begun 15 s after its time. Both show in PostgreSQL.
"""

import asyncio
import os
import sys
import tomllib
from pathlib import Path

import asyncpg

SILENT_SECONDS, UNMARKED_SECONDS = 60, 120
LAST_QUERY = """
    SELECT extract(epoch FROM now() - max(state_change)) FROM pg_stat_activity
    WHERE application_name = 'prefect-services'"""
UNMARKED = f"""
    SELECT count(*) FROM flow_run WHERE state_type = 'SCHEDULED' AND state_name = 'Scheduled'
    AND next_scheduled_start_time < now() - interval '{UNMARKED_SECONDS} seconds'"""


async def problem(**server: object) -> str:
    """Return what is wrong with the services, or an empty text. `server` are asyncpg's settings of the connection."""
    connection = await asyncpg.connect(timeout=5, **server)
    try:
        silent = await connection.fetchval(LAST_QUERY)
        unmarked = await connection.fetchval(UNMARKED)
    finally:
        await connection.close()
    if silent is None or silent > SILENT_SECONDS:
        found = "none" if silent is None else f"the last one {silent:.0f} s ago"
        return f"expected a query of the services within {SILENT_SECONDS} s, found {found}"
    if unmarked:
        return f"expected late runs to be marked, found {unmarked} that were due {UNMARKED_SECONDS} s ago"
    return ""


if __name__ == "__main__":
    password = tomllib.loads(Path("prefect.toml").read_text())["server"]["database"]["password"]
    found = {name: os.environ[f"PREFECT_SERVER_DATABASE_{name.upper()}"] for name in ("host", "user")}
    database = os.environ["PREFECT_SERVER_DATABASE_NAME"]
    sys.exit(asyncio.run(problem(password=password, database=database, **found)) or 0)
