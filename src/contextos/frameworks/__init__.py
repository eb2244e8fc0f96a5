"""Agent frameworks: their tool calls go to a gate, and their own tools become governed tools.

One module for each framework, behind an extra of its name. None of them is imported unless it is used.
Tests: `tests/frameworks`.
"""
