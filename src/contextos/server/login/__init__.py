"""Logins of people: with a browser (`browsers`), the route that describes the caller (`callers`), and passkeys that
people register (`passkeys`).

Tests: `tests/unit/server/login`, `tests/attacks/test_f51_browser_sessions.py`.
"""
