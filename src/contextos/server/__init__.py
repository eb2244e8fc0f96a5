"""Protocols by which external callers reach this process: the MCP tool of context slots, over stdio or HTTP.

Owns the translation of a protocol's message to a call and back, and which requests are served. Does not own the answer,
which `slots` resolves. The process that starts a server passes the ports and the actor; a client can set neither.

- `mcp_slots`: the tool `context_resolve`.
- `serving`: MCP over stdin and stdout, or over HTTP on this machine.

Invariants, with the tests that prove them (`tests/unit/server/test_mcp_slots.py`):

- A client cannot choose the actor or the installed extensions, and resolving writes nothing.
- HTTP serves only a loopback address, and only requests with the token.
"""
