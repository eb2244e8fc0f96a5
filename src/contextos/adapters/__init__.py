"""Adapters: implementations of the `Adapter` port, which the Tool Gateway sends governed calls to, and of `Directory`.

Owns: plain Python functions as capabilities (`function`), tools of MCP servers (`mcp`), skills of A2A agents (`a2a`),
HTTP APIs by their OpenAPI documents (`openapi`), the reviewed files of these and what their adapters share (`foreign`),
the files that requests name (`attachments`), the client that sends requests (`outbound`), identities from a file
(`directory`) or a signed one (`signed_directory`), the runtime's keys in files (`key_files`, `encrypted_keys`) or in a
key service (`remote_keys`), users from OIDC tokens (`oidc_directory`, `jwks`).

Does not own: whether a call is allowed (Trust); its schema, idempotency key and recovery (Action); which adapters there
are (settings list every one; nothing is discovered).

Invariants, with the tests that prove them:

- A fault in a write is a `LostReply`, whatever went wrong. `Unavailable` means that nothing happened.
  `tests/unit/adapters/function/test_adapter.py`
- A lookup never raises `Unavailable`, except that this process is overloaded: the caller would conclude that the call
  that it looks up did not happen. `tests/unit/adapters/function/test_adapter.py`
- An exception of foreign code is logged by class and frames, and nothing of its message, arguments or variables is
  logged or recorded. `tests/unit/adapters/function/test_adapter.py`
- Code runs only if its bytes have the digest that settings name. `tests/unit/adapters/function/test_loading.py`
- The keys of an issuer are never used when they are older than five minutes. `tests/unit/adapters/test_jwks.py`
- No older version of a signed directory is used. `tests/attacks/test_e31_signed_directory.py`
- A user of an OIDC issuer is known by a verified token alone, until it expires.
  `tests/attacks/test_e32_users_from_tokens.py`
- A private key is read only from a file that nobody else can read, and only of the right algorithm. A signature of a
  key service is used only if the pinned key verifies it. `tests/attacks/test_e30_keys_in_use.py`
- What an adapter of a foreign system sends over HTTP reaches an endpoint of its egress list, at an address that was
  checked, and nothing else. `tests/attacks/test_d35_outbound_requests.py`
"""
