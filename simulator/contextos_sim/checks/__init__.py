"""What the simulation checks when a seed has ended: every run and its record, and that `verify` finds alterations."""
