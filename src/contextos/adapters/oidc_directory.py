"""`OidcDirectory`: users from verified OIDC tokens; agents, approvers and limits from a signed file.

The program that takes requests hands each user's token to `sign_in`. The token is verified once. The settings map its
claims to a user, who is sealed with the runtime's key and kept in the tenant's store until the token expires. So every
process of the deployment knows the user, and an entry that the owner of the database makes up is not accepted. The
token itself is not kept. After it expired the user is unknown, and a write for them is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contextos.adapters.signed_directory import AskWitness, SignedDirectory
from contextos.contracts.documents.identities import SIGNED_IN, SealedIdentity
from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.envelopes.identity import HeldRoles, KnownDelegation, KnownUser
from contextos.contracts.journal import CONTROL, Batch
from contextos.contracts.ports.outside import Clock, Entropy, Keys
from contextos.contracts.ports.storage import Stores
from contextos.errors import Conflict, InvalidInput, InvalidSettings, NotFound, Problem, SignatureInvalid
from contextos.trust.identity.jwt import media_type, token_key_id, wrong_claim
from contextos.trust.identity.oidc import TrustedIssuer, VerifiedToken, verify_oidc_token
from contextos.trust.seal import open_sealed, seal

if TYPE_CHECKING:
    from contextos.adapters.jwks import Jwks

IDENTITY_TYPE: Final = "application/vnd.contextos.signed-in+json"
MAX_VALUES: Final = 256
MAX_SIGN_IN_RACES: Final = 8


@dataclass(frozen=True, slots=True)
class ClaimNames:
    """The claims that describe a user. `roles` maps a value of the claim `roles_claim` to a role here; no other value
    gives a role. The user's own role is the first in the order of `roles`. `scopes` lists the scopes that a user can
    delegate. The claim `scopes_claim` is a list, or a text with spaces between; `tenant_claim` names the user's tenants
    in the same way. `agent_claim` names the only agent to which a token delegates; "": the caller names the agent.
    """

    user_claim: str = "sub"
    roles_claim: str = "groups"
    roles: Mapping[str, str] = field(default_factory=dict)
    scopes_claim: str = "scope"
    scopes: tuple[str, ...] = ()
    organization_claim: str = ""
    tenant_claim: str = ""
    agent_claim: str = ""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A user who is signed in until `expires_at` (Unix seconds). `token_ref` names the user's delegation to one agent;
    it is `user.delegation.token_ref` of a request. `scopes` are the scopes of the token.
    """

    user_id: str
    token_ref: str
    expires_at: int
    scopes: tuple[str, ...] = ()


class OidcDirectory(SignedDirectory):
    """The `Directory` port over a signed file and the tokens of `issuer`.

    If the file has several tenants, the claim `tenant_claim` of a token has to name the tenants of its user.
    """

    def __init__(
        self,
        path: Path,
        signers: Sequence[bytes],
        stores: Stores,
        *,
        issuer: TrustedIssuer,
        jwks: Jwks,
        claims: ClaimNames,
        keys: Keys,
        clock: Clock,
        entropy: Entropy,
        ask_witness: AskWitness | None = None,
        read_only: bool = False,
    ) -> None:
        self._issuer, self._jwks, self._claims, self._keys, self._clock = issuer, jwks, claims, keys, clock
        sealing: dict[str, Any] = {"keys": keys, "clock": clock, "entropy": entropy}
        super().__init__(path, signers, stores, **sealing, ask_witness=ask_witness, read_only=read_only)

    async def check(self) -> None:
        """As `SignedDirectory.check`. Also refuse a file with several tenants if `tenant_claim` is not set."""
        await super().check()
        if not self._claims.tenant_claim and len(self.tenants()) > 1:
            detail = "the directory has several tenants, and no claim says of which one a user is"
            remedy = "name the claim in `tenant_claim`, or deploy each tenant on its own"
            raise InvalidSettings(Problem("/directory/tenant_claim", "missing", detail, remedy))

    async def sign_in(self, tenant_id: str, token: str, *, agent_id: str, session: str = "") -> SignedIn:
        """Verify a user's token, and keep the user until the token expires. The user delegates to the agent `agent_id`.

        Calls `verify` and then `delegate`, and raises their errors.
        """
        return await self.delegate(tenant_id, await self.verify(token), agent_id=agent_id, session=session)

    async def verify(self, token: str) -> VerifiedToken:
        """Return the content of a token of the issuer, and keep nothing. The leeway for clocks does not extend the
        lifetime of the token, because its user and their delegation end with it.

        Raises:
            SignatureInvalid: the token is refused.
            Unavailable: the issuer does not answer.
        """
        jwks, now_us = await self._jwks.with_key(token_key_id(token)), self._clock.now_us()
        content = verify_oidc_token(token, self._issuer, jwks, now_us=now_us)
        if now_us >= int(content.expires_at_s) * 1_000_000:
            detail = "the token is expired; ask for a new one"
            raise wrong_claim(detail, content.claims, "exp", f"after {now_us / 1e6:.0f}")
        return content

    async def verify_login(self, id_token: str, *, client_id: str, nonce: str) -> VerifiedToken:
        """Return the content of an ID token that the issuer made for the client `client_id` and this login.

        Raises:
            SignatureInvalid: the token is refused.
            Unavailable: the issuer does not answer.
        """
        jwks = await self._jwks.with_key(token_key_id(id_token))
        issuer = replace(self._issuer, audience=client_id, token_type="JWT", clients=())
        return verify_oidc_token(id_token, issuer, jwks, now_us=self._clock.now_us(), nonce=nonce)

    def is_silent(self) -> bool:
        """Return whether the last attempt to get the keys of the issuer failed (`Jwks.is_silent`)."""
        return self._jwks.is_silent()

    @property
    def takes_id_tokens_of(self) -> str:
        """The client whose ID tokens sign users in; "" if users sign in with access tokens."""
        return self._issuer.audience if media_type(self._issuer.token_type) == "jwt" else ""

    def claims_read(self, token: VerifiedToken) -> dict[str, Any]:
        """Return the claims of a token that the settings name."""
        names = self._claims
        claim_names = (
            names.user_claim,
            names.roles_claim,
            names.scopes_claim,
            names.organization_claim,
            names.tenant_claim,
            names.agent_claim,
        )
        return {name: token.claims[name] for name in claim_names if name in token.claims}

    def tenants_named(self, token: VerifiedToken) -> tuple[str, ...]:
        """Return the tenants of the directory to which the user of a token belongs."""
        tenants = self.tenants()
        if not self._claims.tenant_claim:
            return tenants if len(tenants) == 1 else ()
        return tuple(value for value in _claim_values(token.claims.get(self._claims.tenant_claim)) if value in tenants)

    def agent_named(self, token: VerifiedToken) -> str | None:
        """Return the only agent to which a token delegates, or None if the settings name no claim for it.

        Raises:
            SignatureInvalid: the settings name a claim, and the token does not state it.
        """
        if not self._claims.agent_claim:
            return None
        agent_id = token.claims.get(self._claims.agent_claim)
        if not isinstance(agent_id, str) or not agent_id:
            detail = f"the token names no agent in `{self._claims.agent_claim}`"
            raise wrong_claim(detail, token.claims, self._claims.agent_claim)
        return agent_id

    async def delegate(self, tenant_id: str, token: VerifiedToken, *, agent_id: str, session: str = "") -> SignedIn:
        """Keep the user of a verified token until the token expires. The user delegates to the agent `agent_id`.

        Each token gives a delegation of its own. With `session`, the name of a session of this user, each later token
        renews the one delegation of that name, so that the session goes on. An older token goes on under the delegation
        of a newer token only if the older token has all scopes of that delegation.

        Raises:
            InvalidInput: the delegation of the session has scopes that the token does not have.
            SignatureInvalid: the claims name no user, no role, another tenant or another agent.
            NotFound: the directory has no such tenant or agent.
            Unavailable: the store does not answer.
        """
        tenant = await self._tenant(tenant_id)
        if agent_id not in tenant.get("agents", {}):
            raise NotFound("the directory knows no such tenant or agent; check both")
        if tenant_id not in self.tenants_named(token):
            detail = "the token does not say that its user is one of this tenant"
            raise wrong_claim(detail, token.claims, self._claims.tenant_claim, tenant_id)
        if self.agent_named(token) not in (None, agent_id):
            raise wrong_claim("the token delegates to another agent", token.claims, self._claims.agent_claim, agent_id)
        user, expires_at = self.user_named(token), int(token.expires_at_s)
        delegation = KnownDelegation(subject=user.user_id, agent_id=agent_id, scopes=user.scopes, expires_at=expires_at)
        session_key = canonical([user.user_id, agent_id, session]) if session else b""
        token_ref = f"oidc:{(digest(session_key) if session else token.token_digest).removeprefix('sha256:')[:32]}"
        await self._store_sealed(tenant_id, f"user/{user.user_id}", user.to_json(), token)
        await self._store_sealed(tenant_id, f"delegation/{token_ref}", delegation.to_json(), token)
        current = await self.delegation(tenant_id, token_ref) if session else None
        if current is not None and not set(current.scopes) <= set(user.scopes):
            detail = "the session goes on under a newer token, with scopes that this token does not have"
            remedy = "send the newer token, or name another session"
            raise InvalidInput(Problem("/session", "insufficient_scope", detail, remedy))
        return SignedIn(user.user_id, token_ref, expires_at, user.scopes)

    async def delegation(self, tenant_id: str, token_ref: str) -> KnownDelegation | None:
        """Return the delegation of a user who is signed in, or a delegation in the file, or None."""
        if not token_ref.startswith("oidc:"):
            return await super().delegation(tenant_id, token_ref)
        body = await self._load_sealed(tenant_id, f"delegation/{token_ref}") if await self._tenant(tenant_id) else None
        return parse(KnownDelegation, body) if body is not None else None

    async def held_roles(self, tenant_id: str) -> HeldRoles:
        """Return the roles that a token can give to a user, and the roles that approvers hold."""
        roles = await super().held_roles(tenant_id)
        by_token = {"users": tuple(sorted(set(self._claims.roles.values()))), "requesters": None, "delegations": None}
        return roles.model_copy(update=by_token)

    async def _user(self, tenant_id: str, tenant: Mapping[str, Any], user_id: str) -> KnownUser | None:
        body = await self._load_sealed(tenant_id, f"user/{user_id}") if tenant else None
        return parse(KnownUser, body) if body is not None else None

    def user_named(self, token: VerifiedToken) -> KnownUser:
        """Return the user whom a token describes. Raises `SignatureInvalid` if it describes none with a role here."""
        names, claims = self._claims, token.claims
        user_id = claims.get(names.user_claim)
        values = set(_claim_values(claims.get(names.roles_claim)))
        roles = tuple(dict.fromkeys(role for value, role in names.roles.items() if value in values))
        if not isinstance(user_id, str) or not user_id:
            raise wrong_claim(f"the token names no user in `{names.user_claim}`", token.claims, names.user_claim)
        if not roles:
            detail = f"the token names nobody with a role here in `{names.roles_claim}`"
            raise wrong_claim(detail, token.claims, names.roles_claim, list(names.roles))
        token_scopes = _claim_values(claims.get(names.scopes_claim))
        fields: dict[str, Any] = {
            "user_id": user_id,
            "role": roles[0],
            "roles": list(roles[1:]),
            "scopes": [scope for scope in names.scopes if scope in token_scopes],
            "delegation_live": True,
        }
        if names.organization_claim and (organization := claims.get(names.organization_claim)) is not None:
            fields["organization_id"] = organization
        try:
            return parse(KnownUser, fields)
        except InvalidInput as error:
            raise SignatureInvalid(f"the token describes no user: {error.problems[0].pointer}") from None

    async def _store_sealed(self, tenant_id: str, key: str, body: Mapping[str, Any], token: VerifiedToken) -> None:
        """Seal `body`, the content of a token, under `key`, and replace the content of an earlier token. A token that
        was issued before the kept one changes nothing, so that nobody gets a role back with an old token.
        """
        store = self._stores.tenant(tenant_id)
        fields = {"expires_at": int(token.expires_at_s), "issued_at": int(token.issued_at_s), "body": dict(body)}
        payload = canonical({"tenant_id": tenant_id, "key": key, **fields})
        identity = SealedIdentity(seal(IDENTITY_TYPE, payload, self._keys, "claim"))
        for _ in range(MAX_SIGN_IN_RACES):
            row = await SIGNED_IN.one(store, key)
            earlier = self._open_payload(tenant_id, key, row.body) if row else None
            if earlier is not None and earlier["issued_at"] > fields["issued_at"]:
                return
            write = SIGNED_IN.write(key, row.version if row else 0, identity)
            try:
                await store.commit(Batch(run=CONTROL, writes=(write,)))
            except Conflict:
                continue
            return
        raise Conflict(key, "sign in again")

    async def _load_sealed(self, tenant_id: str, key: str) -> dict[str, Any] | None:
        """Return the content under this key of this tenant; None if absent, expired, or not sealed by the runtime."""
        row = await SIGNED_IN.one(self._stores.tenant(tenant_id), key)
        payload = self._open_payload(tenant_id, key, row.body) if row else None
        body: dict[str, Any] | None = payload and payload["body"]
        return body

    def _open_payload(self, tenant_id: str, key: str, identity: SealedIdentity) -> dict[str, Any] | None:
        try:
            payload = loads(open_sealed(identity.envelope, self._keys, "claim", [IDENTITY_TYPE]))
        except (SignatureInvalid, InvalidInput):
            return None
        assert isinstance(payload, dict), "the runtime sealed an object"
        is_current = (payload["tenant_id"], payload["key"]) == (tenant_id, key)
        return payload if is_current and self._clock.now_us() < payload["expires_at"] * 1_000_000 else None


def _claim_values(claim: Any) -> tuple[str, ...]:
    """Return the values of a claim: a list of texts, or a text with spaces. () if it is neither, or too long."""
    values = claim.split() if isinstance(claim, str) else claim
    if not isinstance(values, list) or len(values) > MAX_VALUES or not all(isinstance(value, str) for value in values):
        return ()
    return tuple(values)
