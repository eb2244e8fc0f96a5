"""The journal of a run: an append-only list of entries that is recorded while the run works and read back in a replay.

Modules: `ledger` (recording and replay), `chain` (the hash chain), `signed_heads` (signatures over its end) and
`record` (the DecisionRecord of a run, computed from the entries). Entries are stored by `store`, and their heads are
published by `deployment.witness`.

Tests: `tests/unit/trust/journal/test_ledger.py`, `tests/unit/contracts/entries/test_of_effect.py`,
`tests/e2e/test_tamper.py`, `tests/e2e/test_one_hash.py`.
"""
