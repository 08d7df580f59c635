"""The report of a run: one self-contained HTML page, made from its receipt, the ledger and the published rows."""
