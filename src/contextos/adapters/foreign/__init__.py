"""What the adapters of foreign servers share, whatever protocol they speak.

Owns: the adapter file and its checks (`adapter_file`), what an adapter of a server declares and how its faults are
caught (`server_adapter`), the errors that end a call (`replies`), what the URL of a server can be (`server_url`),
the form of a draft (`drafting`), and the schemas of a server in the profile that the runtime checks (`schemas`,
`tool_schemas`, `keywords`, `parts`, `dialects`, `texts`).

Does not own: how bytes leave the machine (`contextos.adapters.outbound`); the quarantine after a change of a definition
(`contextos.action.quarantine`).

Invariants, with the tests that prove them:

- The reply of a capability whose definition changed holds ids only. `tests/unit/adapters/foreign/test_replies.py`
- The schema of arguments accepts nothing that the server's own refuses, but where a branch of a `oneOf` is narrowed:
  what then fits one branch alone fitted two, and a note of the draft says so.
  `tests/unit/adapters/foreign/test_schemas.py`
- A drafted capability is a write that cannot be undone and that a person approves, unless a person states that it only
  reads. `tests/unit/adapters/foreign/test_drafting.py`
"""
