"""What the groups of routes share: pages of lists, answers to `If-None-Match`, and acts that people sign.

No group imports another for these. Tests: `tests/unit/server/shared`.
"""
