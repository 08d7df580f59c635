"""The flows, the job model and the command line."""
