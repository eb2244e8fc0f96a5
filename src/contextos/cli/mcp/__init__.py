"""Commands around the Model Context Protocol: `mcp serve`.

Tests: `tests/unit/cli/mcp`.
"""
