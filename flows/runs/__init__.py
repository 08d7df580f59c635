"""The parts of one run: attempts, crash recovery, cancellation, GPU slots and the task runner."""
