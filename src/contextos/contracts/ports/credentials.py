"""The `Credentials` port: exchanges the identity of a run's user and agent for a token of one service (RFC 8693)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class CredentialRequest:
    """A request to exchange two tokens of this runtime for one that an external service accepts.

    `subject_token` says for whom the service is called (the user), and `actor_token` who calls it (the agent); both are
    a compact JWS for the issuer alone. `audience` names the service. `scopes` are the rights wanted; both the user and
    the agent have them. `ttl_s` is the longest lifetime, in seconds, that is accepted. `trace` are the trace
    headers of the request.
    """

    tenant_id: str
    run_id: str
    subject_token: str = field(repr=False)
    actor_token: str = field(repr=False)
    audience: str
    scopes: tuple[str, ...]
    ttl_s: int
    trace: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret bearer token for one external service, valid until `expires_at_us` (Unix microseconds). It is never
    recorded or logged.

    `reference` is the hash by which auditors find it at the issuer, such as `jti_hash:sha256:…`. It is not secret.
    """

    token: str = field(repr=False)
    scopes: tuple[str, ...]
    expires_at_us: int
    reference: str


class Credentials(Protocol):
    """Exchanges the identity of a run's user and agent for a token that one external service accepts.

    `issuer` is the issuer of the token: the audience of the tokens in a request, and the name that the journal records.
    """

    @property
    def issuer(self) -> str: ...

    async def exchange(self, request: CredentialRequest) -> Credential:
        """Return a token with at most the scopes and the lifetime that `request` asks for.

        Raises:
            InvalidInput: the issuer refuses the request, or its answer is not what was asked for; a retry has the same
                result.
            Unavailable: the issuer did not answer; retry.
        """
        ...
