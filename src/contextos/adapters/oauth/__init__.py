"""OAuth 2.0 Token Exchange (RFC 8693): the `Credentials` port over an authorization server.

Owns: the request to the token endpoint (`token_exchange`), and what of its answer is accepted (`issued_token`).

Does not own: who the subject and the actor are (`contextos.runtime.credentials`); how a request leaves the machine
(`contextos.adapters.outbound`).

Invariants, with the tests that prove them:

- An answer that grants more, for longer, or to somebody else than was asked for is refused.
  `tests/attacks/test_d41_exchanged_credentials.py`
- No text of the server and no token is in an error. `tests/unit/adapters/oauth/test_token_exchange.py`
"""
