"""The results of models by row, which later runs and other jobs take."""
