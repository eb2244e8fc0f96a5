"""Identity: who acts in a run, and how that is proved to others.

Modules: `principals` (a request's identity against the directory's answer), `claims` (the signed claim of one run),
`jws` (compact JWS signatures of people) and `oidc` (tokens of a trusted OpenID Connect issuer). Which users and agents
exist is decided by the `Directory` port.

Tests: `tests/unit/trust/identity/test_principals.py`, `tests/unit/trust/identity/test_claims.py`,
`tests/attacks/test_e28_oidc_tokens.py`.
"""
