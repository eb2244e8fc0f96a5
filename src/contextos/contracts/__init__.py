"""Contracts: the types that more than one plane uses. Every plane imports this package and no other plane.

Owns the wire models (`envelopes`), stored documents (`documents`), the journal's types (`journal`), ids and evidence
references, the ports, and JSON encoding (`encoding`). Does not own behaviour: no module here does I/O, and none calls a
port. `pydantic_internals` holds every private part of pydantic that is used.

Tests: `tests/unit/contracts`, and `tests/unit/contracts/envelopes/test_fuzz_envelopes.py` for arbitrary input.
"""
