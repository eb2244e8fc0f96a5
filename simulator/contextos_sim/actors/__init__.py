"""The actors of a simulated world: callers, people, engines, and a writer of the database who holds no key.

Tests: `tests/simulator/test_simulation.py`.
"""
