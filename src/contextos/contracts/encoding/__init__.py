"""Encoding: strict JSON input, canonical JSON output (RFC 8785), JSON Pointer, and escapes for display.

Does not own what a value means: models are in `contracts.envelopes`.
Tests: `tests/unit/contracts/encoding`.
"""
