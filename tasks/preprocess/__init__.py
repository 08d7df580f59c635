"""Work on the CPU between the read and the models."""
