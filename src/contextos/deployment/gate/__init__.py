"""The gate: how an agent that chooses its own calls opens a session, asks for calls, and finishes.

Tests: `tests/unit/deployment/gate`.
"""
