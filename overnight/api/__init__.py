"""The Python API: the functions and classes that `import overnight` offers. The command line calls the same code."""
