"""Stage rows in parts, verify and check them, and publish them."""
