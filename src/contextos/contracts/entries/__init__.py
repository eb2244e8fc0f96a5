"""The typed bodies of journal entries: one type for each kind, of a run's stream and of a tenant's two own streams.

Owns the shape of a body. Does not own its meaning, nor when an entry is written: the journal checks no body at run
time; the simulator and the golden histories check every one.
Tests: tests/unit/contracts/entries/test_bodies.py.
Source: docs/design/journal.md.
"""
