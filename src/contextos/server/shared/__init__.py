"""What the groups of routes share: pages of lists, answers to `If-None-Match`, and forms of texts.

No group imports another for these. Tests: `tests/unit/server/shared`.
"""
