"""Logins of people: with a browser (`browsers`), who a request is from (`callers`), and the passkeys
that people register (`passkeys`).

Tests: `tests/unit/server/login`, `tests/attacks/test_f51_browser_sessions.py`.
"""
