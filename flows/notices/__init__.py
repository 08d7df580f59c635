"""Send what happened to a run: messages to the receivers of `notify`, and events of OpenLineage."""
