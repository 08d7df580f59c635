"""The suite of the preprocess steps: each kind with its adapter."""

from overnight.tasks.preprocess.kinds import Step
from tests.contracts.steps.adapters import columns, media, rows
from tests.contracts.suite import Suite, kinds_of

ADAPTERS = media.ADAPTERS | rows.ADAPTERS | columns.ADAPTERS
STEPS = Suite("Steps", kinds_of(Step), {kind: ADAPTERS[kind] for kind in sorted(ADAPTERS)})
