"""The contract of a sink, and its promises by leaf. PostgreSQL is a second adapter of the sink `sql`."""

from overnight.tasks.write.kinds import AnySink
from tests.contracts.sinks.adapters import ADAPTERS, Adapter
from tests.contracts.suite import Suite, kinds_of

SINKS: Suite[Adapter] = Suite("Sinks", kinds_of(AnySink), ADAPTERS)
