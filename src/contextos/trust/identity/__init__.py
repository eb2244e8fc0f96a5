"""Identity: who acts in a run, and how that is proved to others.

Modules: `principals` (a request's identity against the directory's answer), `claims` (the signed claim of one run),
`jws` (compact JWS signatures of people), `jwt` (what every kind of foreign token shares), `oidc` (tokens of a trusted
OpenID Connect issuer), `svid` (SPIFFE JWT-SVIDs of workloads), `refusals` (the line of the log about a token),
`development` (tokens of the runtime itself, for one machine) and `callers` (who sent a request over the network, and
what it can state). Which users and agents exist is decided by the `Directory` port.

Tests: `tests/unit/trust/identity/test_principals.py`, `tests/unit/trust/identity/test_claims.py`,
`tests/attacks/test_e28_oidc_tokens.py`, `tests/attacks/test_e33_bearer_tokens.py`,
`tests/attacks/test_e34_workloads.py`, `tests/attacks/test_e35_development_tokens.py`,
`tests/attacks/test_g161_keys_that_share_an_id.py`.
"""
