"""Steps 7 to 13: what a run can see, the plan that is tried, its result and its score; and sessions of agents.

Tests: `tests/e2e/test_verdicts.py`, `tests/unit/runtime/attempts`.
"""
