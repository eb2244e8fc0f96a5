"""Operator acts on a tenant: prove who acts, change what the act is about, and record both in one commit.

Modules: `act` (prove an act and make its control entry), `governance` (publish, activate, pin and withdraw artifacts),
`curation` (change the artifacts of context slots), `memories` (promote or reject a proposed memory), `ended_runs`
(resolve, close or reopen what ended), `cancels` (what a cancel request meets in the store), `checks` (what is verified
before an act on a run). Acts on a run that has not ended are in `deployment.operator`, and the restore of a store is in
`deployment.restore`; they prove their actors here too.

Tests: `tests/attacks/test_a02_policies_are_a_signed_act.py`, `tests/attacks/test_a03_operators_are_proved.py`.
"""
