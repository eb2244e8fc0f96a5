"""MCP servers, over stdio or HTTP: how a client of that protocol reaches this process.

Owns the translation of a protocol's message to a call and back, and which requests are served. Does not own the answer,
which the gate of a session or `context.slots` gives. The process that starts a server passes the ports; a client can
set none.

- `serving`: the tools of a pack; each call goes through the gate. `calls`: recognises a repeated call.
  `answers`: the answers of the gate as MCP results. `sessions`: the open sessions, with the user and run of each.
- `oauth`: finds the sender of a request over HTTP by its access token.
- `slots`: the tool `context_resolve`.
- `stdio`: MCP over stdin and stdout. Over HTTP it is `server.serving`, on this machine.

Invariants, with the tests that prove them (`tests/unit/server/mcp/test_slots.py`):

- A client cannot choose the actor or the installed extensions, and resolving writes nothing.
- A client approves nothing, and acts for nobody but its user (`tests/attacks/test_d37_mcp_clients_approve_nothing.py`,
  `tests/attacks/test_d38_mcp_users_and_tokens.py`).
- HTTP serves only a loopback address. Every request but that for the metadata of RFC 9728 needs a token.
- A request over HTTP has one reading, or is refused (`tests/attacks/test_f54_http_edge.py`).
- Nothing but the protocol reads stdin or writes stdout, every line of a client is bounded, and each line that is a
  request, or is not a message, is answered (`tests/unit/server/mcp/test_stdio.py`).
"""
