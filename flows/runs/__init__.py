"""What holds one run together: attempts, crashes, cancellation, GPU slots, the task runner."""
