"""Mines a pack from the calls of recorded sessions, and judges recorded sessions by a pack.

Both only read the verified journal of sessions. The judgement uses a deployment in memory with the recorded answers.

Tests: `tests/unit/packs/mining`.
"""
