"""The five rooms of a run, the search, and the packages that they share."""
