"""The outside that calls us: so far the MCP face of context slots (`mcp_slots`) and how it is served (`serving`).

Owns the way from a protocol's message to a call and back. Does not own what is decided: it is handed ports and an
actor, and trusts nothing that a caller says of either.
"""
