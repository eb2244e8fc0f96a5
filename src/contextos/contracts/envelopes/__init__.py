"""The wire models of the specification: requests, packs, plans, tool calls, records, memory, artifacts and slots.

Owns the shape of each model and the rules between its fields. Does not own the published JSON Schemas, which
`contracts.schemas` generates from these models, nor how a model is stored (`contracts.documents`).
Tests: `tests/unit/contracts/envelopes`.
"""
