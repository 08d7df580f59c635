"""The trial of a sample, and the sizes of batches and workers that follow from it."""
