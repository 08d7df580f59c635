"""From the manifest to blocks of rows."""
