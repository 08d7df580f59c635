"""The modules that every CPU worker imports before its first row.

On a local Ray, one process imports PyTorch and these modules once, and CPU workers are forked from it. Elsewhere, a
process of Ray imports them while inputs are listed. `early_imports.py` begins both.
"""

import overnight.tasks.infer.in_process
import overnight.tasks.ingest.in_process
import overnight.tasks.preprocess.in_process
import overnight.tasks.workers.pickling  # noqa: F401
