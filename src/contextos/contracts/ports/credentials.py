"""The `Credentials` port: a run's identity claim for a token that one external service accepts (RFC 8693)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CredentialRequest:
    """One token exchange. `claim` is the signed identity claim of the run (JWS compact).

    `audience` names the external service and `scopes` what the token is for, at most what the claim holds.
    `ttl_s` is the longest lifetime that is wanted, in seconds.
    """

    tenant_id: str
    run_id: str
    claim: str = field(repr=False)
    audience: str
    scopes: tuple[str, ...]
    ttl_s: int


@dataclass(frozen=True, slots=True)
class Credential:
    """A token for one audience until `expires_at_us` (Unix time in microseconds). It is never recorded or logged.

    `reference` names the exchange to auditors (`claim_hash:...`, an issuer's `jti`) and holds no secret.
    """

    token: str = field(repr=False)
    token_type: str
    scopes: tuple[str, ...]
    expires_at_us: int
    reference: str


class Credentials(Protocol):
    """Exchanges a run's claim for a credential of one external service."""

    async def exchange(self, request: CredentialRequest) -> Credential:
        """A credential with no more scopes and no longer life than was asked for.

        Raises:
            InvalidInput: the issuer refuses the claim, the audience or a scope; asking again changes nothing.
            Unavailable: the issuer did not answer; nothing was issued, ask again.
        """
        ...
