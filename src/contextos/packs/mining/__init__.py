"""Packs from recordings: mine one from what sessions did, and judge a recording by one.

Both only read: the verified journal of sessions, and a deployment in memory with the recorded answers.

Tests: `tests/unit/packs/mining`.
"""
