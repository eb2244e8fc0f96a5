"""Commands on context slots: which artifacts fill a slot, and the artifacts themselves.

`contextos slots`: resolve, select, answer, list, lint and serve slots; add, classify and archive artifacts.
Tests: `tests/unit/cli/slots`.
"""
