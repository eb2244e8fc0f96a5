"""Commands on runs: start, list and show them, and answer what they ask.

`invoke`, `compile`, `runs` and `approvals`.
Tests: `tests/unit/cli/runs`.
"""
