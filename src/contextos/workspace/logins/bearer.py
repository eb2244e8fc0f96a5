"""`BearerTokens`: finds out who sent a request over HTTP, by its bearer token. Every HTTP interface uses it.

A token is one of exactly three kinds, and no other issuer counts: an access token of the issuer whose users the
directory knows (`[directory]` with `kind = "oidc"`), a JWT-SVID of a trust domain (`[workloads]`), or a token of the
development issuer (`contextos token`), which counts only in development and on the loopback. The content of a token
that is not verified yet decides only whose keys verify it.

A verified token is kept for a minute at most, by its digest. The directory is asked for each request, so a removed
person or agent is refused at once. The token itself goes no further: no adapter, journal or log gets it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from contextos.adapters.directory import FileDirectory
from contextos.adapters.oidc_directory import OidcDirectory, SignedIn
from contextos.contracts.encoding.jcs import digest
from contextos.contracts.model import MAX_NAME_CHARS
from contextos.contracts.ports.gates import checked_text
from contextos.contracts.ports.outside import Clock, Keys
from contextos.deployment.ports import Ports
from contextos.errors import InvalidInput, NotFound, Problem, SignatureInvalid
from contextos.trust.identity.callers import Acting, Caller, identified_request, stated_identity
from contextos.trust.identity.development import (
    DEVELOPMENT_ISSUER,
    DEVELOPMENT_TYPE,
    DevelopmentToken,
    verify_development_token,
)
from contextos.trust.identity.jws import unverified_payload
from contextos.trust.identity.jwt import token_key_id, token_type_of, wrong_claim
from contextos.trust.identity.oidc import VerifiedToken
from contextos.trust.identity.refusals import logged_refusal
from contextos.trust.identity.svid import TrustDomain, VerifiedSvid, check_bundle, trust_domain_of, verify_svid
from contextos.workspace.logins.development_tokens import development_fault, roles_of
from contextos.workspace.logins.issuers import key_set
from contextos.workspace.settings import Settings
from contextos.workspace.settings.directory import OidcDirectorySetting
from contextos.workspace.settings.reading import invalid_setting

if TYPE_CHECKING:
    from contextos.adapters.jwks import Jwks

KEEP_TOKEN_S: Final = 60
MAX_KEPT_TOKENS: Final = 4_096

Verified = VerifiedToken | VerifiedSvid | DevelopmentToken


@dataclass(frozen=True, slots=True)
class TrustedDomain:
    """A trust domain, where its bundle is, and the tenants in which its workloads can be agents."""

    domain: TrustDomain
    bundle: Jwks
    tenants: tuple[str, ...]


@dataclass(slots=True)
class BearerTokens:
    """Verifies bearer tokens, and binds requests to the callers that they prove. Make it with `App.bearer_tokens`.

    `issuer` is the `iss` of the directory's users, or None. `domains` are the trust domains by name. `development`
    says whether tokens of the development issuer count.
    """

    directory: FileDirectory
    clock: Clock
    keys: Keys
    issuer: str | None = None
    domains: Mapping[str, TrustedDomain] = field(default_factory=dict)
    development: bool = False
    _tokens: OrderedDict[str, tuple[int, Verified]] = field(default_factory=OrderedDict)
    _sign_ins: OrderedDict[tuple[str, ...], tuple[int, SignedIn]] = field(default_factory=OrderedDict)

    async def caller(self, token: str, *, tenant_id: str | None = None) -> Caller:
        """Return the caller that a token proves, in the tenant `tenant_id`, or in the only tenant of the token.

        Raises:
            SignatureInvalid: the token is refused, for any reason, or its user or workload is not known here now.
            NotFound: the token does not belong to this tenant, whether the tenant exists or not.
            InvalidInput: the token belongs to several tenants, and none is named.
            Unavailable: the token cannot be verified, because its issuer or the store does not answer.
        """
        with logged_refusal(token):
            verified = await self._verify_cached(token)
            if isinstance(verified, VerifiedToken):
                return await self.caller_of(verified, tenant_id=tenant_id)
            if isinstance(verified, VerifiedSvid):
                return await self._workload_caller(verified, tenant_id)
            return await self.development_caller(verified, tenant_id=tenant_id)

    async def caller_of(self, token: VerifiedToken, *, tenant_id: str | None = None) -> Caller:
        """Return the caller of a token that the directory's issuer made and that is verified already, as `caller`.

        Raises:
            SignatureInvalid, NotFound, InvalidInput, Unavailable: as `caller`.
        """
        caller = self._oidc_caller(token, tenant_id)
        for agent_id in caller.agent_ids or ():
            agent = await self.directory.agent(caller.tenant_id, agent_id)
            if agent is None or agent.lifecycle != "active":
                detail = "the agent that the token names is unknown or not active"
                raise SignatureInvalid(detail, part="the agent", expected="an active one", found=agent_id)
        return caller

    async def development_caller(self, token: DevelopmentToken, *, tenant_id: str | None = None) -> Caller:
        """Return the caller of a token of the development issuer that is verified already, as `caller`. Raises as
        `caller`.
        """
        tenant_id = _request_tenant((token.tenant_id,), tenant_id)
        user_roles: tuple[str, ...] = ()
        if token.user_id is not None:
            user_roles = await roles_of(self.directory, tenant_id, token.user_id)
        agent = await self.directory.agent(tenant_id, token.agent_id) if token.agent_id else None
        if (token.user_id and not user_roles) or (token.agent_id and (agent is None or agent.lifecycle != "active")):
            raise SignatureInvalid("the directory does not know whom the token names, or they are not active")
        return Caller(
            kind="user" if token.user_id else "workload",
            tenant_id=tenant_id,
            subject=token.user_id or (agent.workload_identity if agent else ""),
            issuer=DEVELOPMENT_ISSUER,
            agent_ids=(token.agent_id,) if token.agent_id else None,
            roles=tuple(role for role in token.roles if role in user_roles),
            scopes=token.scopes,
            expires_at=token.expires_at,
            token_digest=token.token_digest,
            delegation=token.delegation,
        )

    def silent_issuers(self) -> tuple[str, ...]:
        """Return the issuers and trust domains whose keys could not be fetched at the last try (`Jwks.is_silent`)."""
        silent_issuers = tuple(name for name, domain in self.domains.items() if domain.bundle.is_silent())
        if self.issuer is not None and isinstance(self.directory, OidcDirectory) and self.directory.is_silent():
            silent_issuers = (self.issuer, *silent_issuers)
        return silent_issuers

    async def acting(
        self,
        caller: Caller,
        *,
        user: str | None = None,
        agent: str | None = None,
        delegate: bool = True,
        delegation: str | None = None,
        session: str = "",
    ) -> Acting:
        """Return the user and the agent for whom the caller acts, as stated. The directory then knows the user.

        A person acts for themselves, under the delegation of their token alone. A workload acts as its own agent for a
        user whose delegation to this agent is in force; the workload states both. A development token that names no
        agent counts under the delegations of its user in the directory; without one the agent does not act for them.
        `session` names the delegation of a user's token, so that a later token of the same user renews it
        (`OidcDirectory.delegate`). Without `delegate` the agent does not act for the person.

        Raises:
            InvalidInput: the caller states something that the token does not prove, the agent is not active, or the
                session has scopes that the token does not have.
            Unavailable: the store does not answer.
        """
        _check_texts(user=user, agent=agent, delegation=delegation, session=session)
        agent_id, user_id = caller.agent_named(agent), caller.user_named(user)
        directory_agent = await self.directory.agent(caller.tenant_id, agent_id)
        if directory_agent is None or directory_agent.lifecycle != "active":
            raise _refusal("/agent/agent_id", "the directory has no active agent of this id", "activate it there")
        if caller.kind == "workload":
            await self._check_delegated(caller, user_id, agent_id, delegation)
            return Acting(user_id, agent_id, delegation, directory_agent.workload_identity)
        delegation_ref = caller.delegation
        if caller.verified is not None:
            delegation_ref = (await self._sign_in(caller, agent_id, session)).token_ref
        elif delegation_ref is None and delegate and delegation is not None:
            # A development token that names no agent: the delegations of this person in the directory count.
            await self._check_delegated(caller, user_id, agent_id, delegation)
            delegation_ref = delegation
        if not delegate:
            return Acting(user_id, agent_id, None)
        if delegation not in (None, delegation_ref):
            detail = "the delegation is not the one of the token"
            raise _refusal("/user/delegation/token_ref", detail, "leave the reference out, or ask for another token")
        return Acting(user_id, agent_id, delegation_ref)

    async def request(self, caller: Caller, body: Any) -> dict[str, Any]:
        """Return the body of an `InvokeRequest` with the identities that the caller's token proves; send it with
        `Deployment.invoke`.

        Raises:
            InvalidInput: as `acting`; or the body states another tenant or workload than the token proves.
            Unavailable: the store does not answer.
        """
        user, agent, delegate, delegation = stated_identity(body)
        request_id = body.get("request_id")
        session = f"request/{request_id}" if isinstance(request_id, str) else ""
        acting = await self.acting(
            caller, user=user, agent=agent, delegate=delegate, delegation=delegation, session=session
        )
        return identified_request(body, caller, acting)

    async def _verify_cached(self, token: str) -> Verified:
        now_us, key = self.clock.now_us(), digest(token.encode("utf-8", "replace"))
        until_us, cached = self._tokens.get(key, (0, None))
        if cached is not None and now_us < until_us:
            return cached
        verified = await self._verify(token)
        expires_at = verified.expires_at if isinstance(verified, DevelopmentToken) else verified.expires_at_s
        self._tokens[key] = (min(now_us + KEEP_TOKEN_S * 1_000_000, int(expires_at * 1_000_000)), verified)
        _evict_oldest(self._tokens)
        return verified

    async def _verify(self, token: str) -> Verified:
        claims = unverified_payload(token)
        if claims is None:
            token_key_id(token)
            raise SignatureInvalid("the claims of the token are not a JSON object", part="token")
        if token_type_of(token) == DEVELOPMENT_TYPE:
            if not self.development:
                raise SignatureInvalid("tokens of the development issuer do not count here")
            return verify_development_token(token, self.keys, now_us=self.clock.now_us())
        if self.issuer is not None and claims.get("iss") == self.issuer:
            assert isinstance(self.directory, OidcDirectory), "it has an issuer"
            return await self.directory.verify(token)
        trusted_domain = self.domains.get(trust_domain_of(token) or "")
        if trusted_domain is None:
            detail = "the token is of no issuer that this deployment trusts"
            trusted_issuers = [issuer for issuer in (self.issuer, *self.domains) if issuer is not None]
            raise wrong_claim(detail, claims, "iss", trusted_issuers)
        bundle = await trusted_domain.bundle.with_key(token_key_id(token))
        return verify_svid(token, trusted_domain.domain, bundle, now_us=self.clock.now_us())

    def _oidc_caller(self, token: VerifiedToken, requested_id: str | None) -> Caller:
        assert isinstance(self.directory, OidcDirectory), "it verified the token"
        tenant_id = _request_tenant(self.directory.tenants_named(token), requested_id)
        user, agent_id = self.directory.user_named(token), self.directory.agent_named(token)
        return Caller(
            kind="user",
            tenant_id=tenant_id,
            subject=user.user_id,
            issuer=token.issuer,
            agent_ids=None if agent_id is None else (agent_id,),
            roles=tuple(dict.fromkeys((user.role, *user.roles))),
            scopes=tuple(user.scopes),
            expires_at=int(token.expires_at_s),
            token_digest=token.token_digest,
            verified=token,
        )

    async def _workload_caller(self, token: VerifiedSvid, requested_id: str | None) -> Caller:
        name = token.spiffe_id.split("/")[2]
        agents = {
            tenant_id: tuple(agent.agent_id for agent in candidates if agent.lifecycle == "active")
            for tenant_id in self.domains[name].tenants
            if (candidates := await self.directory.workload_agents(tenant_id, token.spiffe_id))
        }
        tenant_id = _request_tenant(tuple(tenant_id for tenant_id, active in agents.items() if active), requested_id)
        return Caller(
            kind="workload",
            tenant_id=tenant_id,
            subject=token.spiffe_id,
            issuer=name,
            agent_ids=agents[tenant_id],
            roles=(),
            scopes=(),
            expires_at=int(token.expires_at_s),
            token_digest=token.token_digest,
        )

    async def _check_delegated(self, caller: Caller, user_id: str, agent_id: str, delegation: str | None) -> None:
        entry = await self.directory.delegation(caller.tenant_id, delegation) if delegation else None
        in_force = entry is not None and self.clock.now_us() < entry.expires_at * 1_000_000
        if entry is None or not in_force or (entry.subject, entry.agent_id) != (user_id, agent_id):
            detail = "no delegation of this user to this agent is in force under this reference"
            raise _refusal("/user/delegation/token_ref", detail, "ask the user for one; a workload acts under it alone")

    async def _sign_in(self, caller: Caller, agent_id: str, session: str) -> SignedIn:
        assert isinstance(self.directory, OidcDirectory), "it verified the token"
        assert caller.verified is not None, "it is one of the directory's users"
        now_us, key = self.clock.now_us(), (caller.token_digest, caller.tenant_id, agent_id, session)
        until_us, cached = self._sign_ins.get(key, (0, None))
        if cached is not None and now_us < until_us:
            # A newer token can have renewed the delegation of a session, with more scopes.
            entry = await self.directory.delegation(caller.tenant_id, cached.token_ref) if session else None
            if not session or (entry is not None and set(entry.scopes) <= set(cached.scopes)):
                return cached
        try:
            signed_in = await self.directory.delegate(
                caller.tenant_id, caller.verified, agent_id=agent_id, session=session
            )
        except NotFound:
            raise _refusal("/agent/agent_id", "the directory has no active agent of this id", "add it there") from None
        until_us = min(now_us + KEEP_TOKEN_S * 1_000_000, signed_in.expires_at * 1_000_000)
        self._sign_ins[key] = (until_us, signed_in)
        _evict_oldest(self._sign_ins)
        return signed_in


def tokens_bound_to(settings: Settings, ports: Ports, bound_to: str) -> BearerTokens:
    """Return the verifier of bearer tokens for a deployment that is served at the host `bound_to`.

    Raises:
        InvalidSettings: no issuer of tokens counts here, or the program brings its own directory.
    """
    directory, clock, keys = ports.directory, ports.clock, ports.keys
    if not isinstance(directory, FileDirectory):
        detail = "the directory is one of the program, so it says nothing of tokens and workloads"
        raise invalid_setting("/directory", "no_tokens", detail, "verify tokens in the program, or use one of ours")
    fault = development_fault(settings, bound_to)
    if fault is None and not (directory.unsafe and getattr(keys, "unsafe", ())):
        fault = "the directory or the keys are those of the program"
    issuer = settings.directory.issuer if isinstance(settings.directory, OidcDirectorySetting) else None
    domains = _domains(settings, clock)
    if issuer is None and not domains and fault is not None:
        remedy = 'write `kind = "oidc"` in `[directory]`, or list trust domains in `[workloads]`'
        raise invalid_setting("/directory", "no_tokens", f"no issuer of tokens counts here, and {fault}", remedy)
    return BearerTokens(directory, clock, keys, issuer, domains, development=fault is None)


def tokens_of_issuer(settings: Settings, ports: Ports) -> BearerTokens:
    """Return a verifier for the access tokens of the issuer that the directory names; it refuses any other token.

    Raises:
        InvalidSettings: the directory takes no tokens.
    """
    setting = settings.directory
    if not isinstance(setting, OidcDirectorySetting) or not isinstance(ports.directory, OidcDirectory):
        detail = "the directory takes no tokens"
        raise invalid_setting("/directory", "no_tokens", detail, 'write `kind = "oidc"` in `[directory]`')
    return BearerTokens(ports.directory, ports.clock, ports.keys, setting.issuer)


def _domains(settings: Settings, clock: Clock) -> dict[str, TrustedDomain]:
    if settings.workloads is None:
        return {}
    domains = {}
    for number, setting in enumerate(settings.workloads.trust_domains):
        pointer, root = f"/workloads/trust_domains/{number}", settings.workspace
        bundle = key_set(pointer, setting, root, clock, setting.name, kind="bundle", check=check_bundle)
        domains[setting.name] = TrustedDomain(setting.trusted(settings.workloads.audience), bundle, setting.tenants)
    return domains


def _request_tenant(tenant_ids: tuple[str, ...], requested_id: str | None) -> str:
    """Return the tenant of a request: the stated one, or the only tenant of the token."""
    if not tenant_ids:
        raise SignatureInvalid("the token is of nobody in a tenant of this deployment")
    if requested_id is not None:
        if requested_id not in tenant_ids:
            raise NotFound("the token is of no such tenant")
        return requested_id
    if len(tenant_ids) > 1:
        problem = Problem("/tenant_id", "tenant_required", "the token is of several tenants", "name one of them")
        raise InvalidInput(problem)
    return tenant_ids[0]


def _check_texts(**texts: str | None) -> None:
    """Refuse stated texts that are not ids, because they are looked up in the store. Raises `InvalidInput`."""
    for name, value in texts.items():
        if value is None:
            continue
        checked_text(value, f"/{name}", MAX_NAME_CHARS, empty=True)
        if any(ord(character) < 32 for character in value):
            detail = "the text has a control character"
            raise InvalidInput(Problem(f"/{name}", "bad_text", detail, "send the id as it is"))


def _evict_oldest(cache: OrderedDict[Any, Any]) -> None:
    if len(cache) > MAX_KEPT_TOKENS:
        cache.popitem(last=False)


def _refusal(pointer: str, detail: str, remedy: str) -> InvalidInput:
    return InvalidInput(Problem(pointer, "identity_refused", detail, remedy))
