"""The five rooms of a run and the few leaves that they share."""
