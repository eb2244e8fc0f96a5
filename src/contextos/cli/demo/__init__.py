"""`contextos demo`: make a workspace from the shipped example, and run two refunds in it, from request to replay.

Tests: `tests/unit/cli/demo`.
"""
