"""The `Credentials` port: a run's identity claim for a token that one external service accepts (RFC 8693)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CredentialRequest:
    """A request to exchange a run's signed identity token, `claim` (compact JWS), for a token of an external service.

    `audience` names the service. `scopes` are the rights wanted, at most those of the claim. `ttl_s` is the longest
    lifetime wanted, in seconds.
    """

    tenant_id: str
    run_id: str
    claim: str = field(repr=False)
    audience: str
    scopes: tuple[str, ...]
    ttl_s: int


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret token for one external service, valid until `expires_at_us` (Unix microseconds). Never recorded or
    logged.

    `reference` identifies the exchange for auditors (`claim_hash:...` or an issuer's `jti`) and is not secret.
    """

    token: str = field(repr=False)
    token_type: str
    scopes: tuple[str, ...]
    expires_at_us: int
    reference: str


class Credentials(Protocol):
    """Exchanges the signed identity token of a run for a token that one external service accepts."""

    async def exchange(self, request: CredentialRequest) -> Credential:
        """Return a token with at most the scopes and the lifetime that `request` asks for.

        Raises:
            InvalidInput: the issuer refuses the claim, the audience or a scope; a retry has the same result.
            Unavailable: the issuer did not answer and issued nothing; retry.
        """
        ...
