"""The in-memory stores: the reference model of each storage port, small enough to review by reading."""
