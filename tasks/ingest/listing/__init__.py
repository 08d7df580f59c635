"""From a path to the manifest: listing, waiting for inputs, limits."""
