"""Identity: who acts in a run, and how that is proved to others.

Modules: `principals` (a request's identity against the directory's answer), `claims` (the signed claim of one run) and
`jws` (compact JWS signatures of people). Which users and agents exist is decided by the `Directory` port.

Tests: `tests/unit/trust/identity/test_principals.py`, `tests/unit/trust/identity/test_claims.py`.
"""
