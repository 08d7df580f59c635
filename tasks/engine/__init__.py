"""The engine: the stages of a job as values, and how a process runs them on blocks of rows."""
