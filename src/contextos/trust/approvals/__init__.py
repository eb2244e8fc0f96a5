"""Approvals and settlements: a person's signed decision about one call, bound to its exact arguments and evidence.

Modules: `gate_approvals` (ask an approver, wait, and check the answer again), `assertion` (the statement that an
approver signs, and the reasons to refuse an answer), `settlement` (the same for an operator who settles an effect of
unknown outcome), `cancel_requests` (which requests to cancel a run are believed). The approver's command is not here
(`deployment.operator`), nor is sending the call (`action`).

Tests: `tests/e2e/test_approvals.py`, `tests/e2e/test_settlements.py`, `tests/machines/test_approvals.py`.
"""
