"""Workspaces from shipped examples: `init` makes one, and `demo` also runs two refunds in it, from request to replay.

Tests: `tests/unit/cli/demo`.
"""
