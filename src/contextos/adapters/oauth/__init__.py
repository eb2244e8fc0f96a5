"""The token endpoint of an authorization server: credentials for calls, and logins of browsers.

Owns: the request of Token Exchange (RFC 8693, `token_exchange`), the `Credentials` port; what of its answer is accepted
(`issued_token`); and the authorization code flow of OpenID Connect (`authorization_code`).

Does not own: who the subject and the actor are (`contextos.runtime.credentials`); how a request leaves the machine
(`contextos.adapters.outbound`).

Invariants, with the tests that prove them:

- An answer that grants more, for longer, or to somebody else than was asked for is refused.
  `tests/attacks/test_d41_exchanged_credentials.py`
- No text of the server and no token is in an error. `tests/unit/adapters/oauth/test_token_exchange.py`
- A code that was used, or that comes back without the secret of the browser that asked for it, gives no tokens.
  `tests/attacks/test_f51_browser_sessions.py`
"""
