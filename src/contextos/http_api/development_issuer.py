"""Access tokens for development: signed with a key that lives as long as the server, for the people of a directory
file.

Refuses a server that other machines can reach, and a directory that is no file. A token is verified as one of any
other issuer is (`trust.identity.oidc`).
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.app import App
from contextos.errors import InvalidInput, Problem, SignatureInvalid
from contextos.http_api.callers import Acting, Caller
from contextos.http_api.problems import IDENTITY_REFUSED
from contextos.trust.identity.jws import sign_compact
from contextos.trust.identity.oidc import TrustedIssuer, verify_oidc_token
from contextos.trust.seal import listed_key

ACCESS_TOKEN_TYPE: Final = "at+jwt"
LIFETIME_S: Final = 43_200
"""How long a token is valid: a working day."""
TENANT_CLAIM: Final = "tenant_id"


@dataclass(frozen=True, slots=True)
class DevelopmentLogin:
    """An access token of a person, for development."""

    tenant_id: str
    person_id: str
    token: str


@dataclass(slots=True)
class DevelopmentIssuer:
    """Issues and verifies the tokens of one server; `url` is its address, the issuer and the audience of each token."""

    app: App
    url: str
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def logins(self) -> list[DevelopmentLogin]:
        """Return a token for everybody in the directory file.

        Raises:
            InvalidSettings: the directory is no development file.
        """
        people = self.app.development_people()
        return [DevelopmentLogin(tenant_id, one, self.issue(tenant_id, one)) for tenant_id, one in people]

    def issue(self, tenant_id: str, person_id: str) -> str:
        """Return an access token of a person, valid for `LIFETIME_S` seconds from now."""
        now_s = self.app.deployment.ports.clock.now_us() // 1_000_000
        claims = {
            "iss": self.url,
            "aud": self.url,
            "sub": person_id,
            TENANT_CLAIM: tenant_id,
            "iat": now_s,
            "exp": now_s + LIFETIME_S,
        }
        return sign_compact(self._key, listed_key(self._key)["kid"], ACCESS_TOKEN_TYPE, claims)

    async def caller(self, token: str) -> Caller:
        """As `Authenticator.caller`, of a token of this server."""
        ports = self.app.deployment.ports
        trusted = TrustedIssuer(self.url, self.url, ("Ed25519",), leeway_s=0, token_type=ACCESS_TOKEN_TYPE)
        verified = verify_oidc_token(token, trusted, self._jwks(), now_us=ports.clock.now_us())
        tenant_id = verified.claims.get(TENANT_CLAIM)
        if not isinstance(tenant_id, str) or not await ports.directory.knows_tenant(tenant_id):
            raise SignatureInvalid("the token names no tenant of this deployment")
        return Caller(tenant_id, verified.subject)

    async def request(self, caller: Caller, body: Any) -> dict[str, Any]:
        """As `Authenticator.request`. The delegation is the one of the directory file that the body names."""
        user = body.get("user", {})
        if not isinstance(user, dict):
            raise InvalidInput(Problem("/user", "not_an_object", "this is no JSON object", "send an object"))
        for at, stated, own in (
            ("/tenant_id", body.get("tenant_id"), caller.tenant_id),
            ("/user/user_id", user.get("user_id"), caller.subject),
        ):
            if stated not in (None, own):
                raise InvalidInput(Problem(at, IDENTITY_REFUSED, "the token does not prove this", "leave it out"))
        return {**body, "tenant_id": caller.tenant_id, "user": {**user, "user_id": caller.subject}}

    async def acting(self, caller: Caller, *, agent: str | None, delegation: str | None) -> Acting:
        """As `Authenticator.acting`. A person can name any agent and delegation of the directory file."""
        if agent is None:
            raise InvalidInput(Problem("/agent", "missing", "no agent is named", "name the agent that acts"))
        return Acting(caller.subject, agent, delegation)

    def _jwks(self) -> dict[str, Any]:
        listed = listed_key(self._key)
        x = base64.urlsafe_b64encode(bytes.fromhex(listed["public_key"])).rstrip(b"=").decode()
        return {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": listed["kid"], "x": x, "use": "sig"}]}
