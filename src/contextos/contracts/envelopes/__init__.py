"""The wire models of the specification: requests, packs, plans, tool calls, records, memory, slots.

Every model is frozen and closed. The published JSON Schemas are generated from them (`contracts.schemas`).
"""
