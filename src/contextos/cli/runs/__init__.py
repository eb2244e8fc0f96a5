"""Commands on runs: start, list and show them, and answer what they ask.

`invoke`, `compile`, `resume`, `runs`, `sessions`, `show`, `approve`, `deny`, `settle`, `cancel`.
Tests: `tests/unit/cli/runs`.
"""
