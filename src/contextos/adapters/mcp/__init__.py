"""MCP servers as adapters: their tools are capabilities, called only while each is listed as it was published.

Owns the connection to a server over stdio or streamable HTTP (official SDK, extra `mcp`), the bounds on what a server
can send, the check of each pinned definition before each call, and the draft of an adapter file from what a server
lists. Does not own whether a call is allowed, nor the schemas, keys and recovery of calls. Prompts of a server, and its
requests for sampling, elicitation and roots, are never used.

Invariants, with the tests that prove them:

- Nothing is sent to a tool whose definition is not the published one, and no text of the new one goes anywhere.
  `tests/attacks/test_d33_changed_mcp_definitions.py`
- A server cannot make this process read more than its limits, nor wait longer than the call's time.
  `tests/attacks/test_d34_hostile_mcp_servers.py`
- A call that may have reached the server is a `LostReply`, unless it is a read.
  `tests/unit/adapters/mcp/test_adapter.py`
"""
