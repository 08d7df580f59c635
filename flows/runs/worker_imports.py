"""The modules that every CPU worker imports before its first row. A fork server imports them once, if there is one."""

import overnight.tasks.infer.in_process
import overnight.tasks.ingest.in_process
import overnight.tasks.preprocess.in_process
import overnight.tasks.workers.pickling  # noqa: F401
