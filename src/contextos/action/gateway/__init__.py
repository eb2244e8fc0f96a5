"""The Tool Gateway: every call to an external system passes its guards, in order, and is then dispatched.

Modules: `tool_gateway` (the list of guards; start here), `guards`, `idempotency` (one operation happens once),
`dispatcher` with `delivery` (send a call and find out its outcome), `result_validation` (check the reply).
Policy, approvals and credentials are decided by `trust`.

Tests: `tests/e2e/test_verdicts.py`, `tests/e2e/test_crash_boundaries.py`, `tests/e2e/test_one_effect.py`,
`tests/machines/test_gateway_idempotency.py`.
"""
