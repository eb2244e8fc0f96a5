"""Logins of people: with a browser (`browsers`), and who a request is from (`callers`).

Tests: `tests/unit/http_api/login`, `tests/attacks/test_f51_browser_sessions.py`.
"""
