"""What happened over time and over jobs: `overnight history`, and the pages of `overnight site`."""
