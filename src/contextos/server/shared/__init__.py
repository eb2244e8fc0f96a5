"""Parts that the groups of routes share: pages of lists, answers to `If-None-Match`, and forms of texts.

So no group imports another group for them. Tests: `tests/unit/server/shared`.
"""
