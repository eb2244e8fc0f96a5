"""Identity: the user, the agent and the approvers.

The identity in a request grants nothing by itself; it is compared with the directory.
Source: API Contracts, "Run Context"; docs/design/contracts.md, "Who is asking".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import ConfigDict, Field, Strict, model_validator

from contextos.contracts.envelopes.artifacts import Party
from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.ids import AgentUrn, Digest, RunId, SessionId, SpiffeId, TenantId
from contextos.contracts.model import Cents, Count, ListOnly, Map, Model, Name, OpenObject, Positive, Seq, Text
from contextos.contracts.refs import EvidenceRef

MAX_TOKEN_CHARS: Final = 16_384
"""The longest token of a login or of a claim that is read, in characters."""
MAX_SIGNED_CHARS: Final = 1_400_000
"""The longest token of a statement that a person signs. It has the call in clear: 1 MiB of JSON, in Base64url."""

Base64Url = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=4_096)]
"""Bytes as Base64url without padding."""

Lifecycle = Literal["active", "suspended", "retired"]


class Principal(Model):
    """One member of a principal chain (the user, and the agent that acts for the user)."""

    kind: Literal["user", "service", "agent", "automation"]
    """What acts: a person, a service, an agent or an automation."""
    id: str = Field(min_length=1, max_length=256)
    """The id of the principal in the directory."""
    tenant_id: TenantId | None = None
    """The tenant of the principal, if stated."""
    display: str | None = Field(default=None, max_length=256)
    """A name for people; it decides nothing."""
    issuer: Name | None = None
    """The partner to which the principal belongs; absent, the principal is in this deployment's directory."""


Chain = Annotated[tuple[Principal, ...], Strict(False), Field(max_length=32), ListOnly()]
"""From the principal who made the request to the principal who executes it."""


class UserDelegation(Model):
    """The scopes that a user delegates to an agent, as in OAuth. It names a token by reference and never contains the
    token.
    """

    auth_type: Literal["oauth2", "saml", "oidc", "service"]
    """The kind of the login behind the delegation, as the caller states it; it grants nothing."""
    scopes: Seq[Name] = ()
    """The scopes that the user delegates; they are compared with the scopes in the directory."""
    subject: Name | None = None
    """The user who delegates: by the user's id, or by the user's `subject` in the directory."""
    token_ref: Name | None = None
    """A reference to the token, such as its hash; a reference that the directory does not know is not kept. If it is
    absent, the only delegation of the user to the agent in the directory is meant.
    """


class UserClaims(Model):
    """The user as the request describes them. Additional fields are kept and have no effect."""

    model_config = ConfigDict(extra="allow")

    user_id: str = Field(min_length=1, max_length=256)
    """The id by which the user is looked up in the directory."""
    delegation: UserDelegation | None = None
    """What the user delegates to the agent; absent, the agent has its own scopes and acts for nobody."""
    role: Name | None = None
    """The role of the user as the caller states it; if the directory has another role, the request is refused."""
    tenure_days: Count | None = None
    """For how many days the user is known, as the caller states it; it grants nothing."""


class IdentityClaim(Model):
    """The content of the short-lived token (`ctxid/1`, an Ed25519 JWS) by which a run proves to adapters who acts.

    `nbf` (not before) and `exp` (expires at) are Unix time in seconds. Records keep only the token's hash. The claim of
    one call has that call's id as `jti`, its adapter as `aud` and the call's scopes; the claim of a run has no `jti`.
    """

    version: Literal["ctxid/1"] | None = None
    """The version of the claim's format."""
    iss: Name | None = None
    """The runtime that issued the claim."""
    sub: AgentUrn
    """The agent that acts."""
    aud: Name | None = None
    """The adapter for which the claim was made; absent in the claim of a run."""
    run_id: RunId
    """The run in which the agent acts."""
    session_id: SessionId | None = None
    """The session to which the run belongs, if any."""
    tenant_id: TenantId
    """The tenant for which the agent acts."""
    principal_chain: Chain | None = None
    """The principals from the one who made the request to the one who executes it."""
    scopes: Seq[Name] = ()
    """The scopes that the claim carries."""
    nbf: Count | None = None
    """The Unix time in seconds before which the claim does not count."""
    exp: Count | None = None
    """The Unix time in seconds from which the claim does not count."""
    jti: Name | None = None
    """The id of the call for which the claim was made; absent in the claim of a run."""
    kid: Name | None = None
    """The id of the key that signed the claim."""
    claim_hash: Digest
    """The digest of the signed token; the token itself is not kept."""

    required_when_sealed: ClassVar[tuple[str, ...]] = ("version", "iss", "principal_chain", "nbf", "exp", "kid")


class HopClaim(Model):
    """What the claim of a partner (`ctxhop+jwt`) proved: which agents called one another, and at last this runtime."""

    issuer: Name
    """The partner that signed the claim."""
    jti: Name
    """The id of the claim; a claim counts for one request only."""
    claim_hash: Digest
    """The digest of the signed token; the token itself is not kept."""
    chain: Chain
    """The agents from the first caller to the agent that called this runtime, each with the partner it belongs to."""


class AgentIdentity(Model):
    """The agent as the request or the RunContext describes it."""

    agent_id: str = Field(min_length=1, max_length=256)
    """The id by which the agent is looked up in the directory."""
    agent_urn: AgentUrn | None = None
    """The name and version of the agent; if the directory has others, the request is refused."""
    workload_identity: SpiffeId
    """The SPIFFE id of the workload; if the directory has another id, the request is refused."""
    role: Name | None = None
    """The role of the agent; if the directory has another role, the request is refused."""
    token_ref: Name | None = None
    """A reference to the agent's token. If the directory has another reference or none, the request is refused and this
    one is not kept. It is never part of the request's fingerprint.
    """
    lifecycle: Lifecycle | None = None
    """Whether the agent is active; if the directory has another state, the request is refused."""
    principal_chain: Chain | None = None
    """The principals from the one who made the request to the one who executes it."""
    identity_claim: IdentityClaim | None = None
    """An identity claim; in a request it grants nothing, and one that was not issued for the run is refused."""


class KnownUser(Model):
    """A user as the directory knows them. The user's `scopes` are delegated to agents while `delegation_live` is true.

    Organisation, teams and projects decide which artifacts the user sees. A user without an organisation sees none.
    `subject` is the name of the user at the issuer of their delegations, where it differs from `user_id`.
    """

    user_id: Name
    subject: Name | None = None
    role: Name
    roles: Seq[Name] = ()
    scopes: Seq[Name] = ()
    delegation_live: bool = False
    organization_id: Party | None = None
    team_ids: Seq[Party] = ()
    project_ids: Seq[Party] = ()
    platform_admin: bool = False


class DirectoryLimits(Model):
    """Upper limits that the directory sets for the runs of an agent or of a tenant. An absent limit limits nothing."""

    total_tokens: Positive | None = None
    max_tool_calls: Count | None = None
    max_replan_attempts: Count | None = None
    wall_clock_ms: Positive | None = None
    max_cost_cents: Cents | None = None
    max_payload_bytes: Positive | None = None
    max_session_duration_ms: Positive | None = None


PlatformScope = Literal["tools:read", "tools:write", "a2a:send"]
"""What an agent is allowed to do at all: call tools that read, tools that write, and agents over A2A."""

DEFAULT_PLATFORM_SCOPES: Final[frozenset[PlatformScope]] = frozenset({"tools:read", "tools:write"})
"""The platform scopes of an agent whose entry in the directory states none."""


class KnownAgent(DirectoryLimits):
    """An agent as the directory knows it. `ceiling` is the highest approval mode that it is allowed to use.

    `platform_scopes` are all that the agent is allowed to do with tools, whatever `scopes` a user delegates to it.
    Absent, they are `DEFAULT_PLATFORM_SCOPES`; an empty list allows nothing. `token_ref` is the only reference to the
    agent's token that a request can state. It is not the token itself.
    """

    agent_id: Name
    agent_urn: AgentUrn
    workload_identity: SpiffeId
    role: Name
    owner: Name
    lifecycle: Lifecycle
    ceiling: ApprovalMode
    scopes: Seq[Name] = ()
    platform_scopes: Seq[PlatformScope] | None = None
    token_ref: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=256)] | None = None

    @property
    def platform(self) -> frozenset[PlatformScope]:
        """Return the platform scopes that the agent has."""
        return DEFAULT_PLATFORM_SCOPES if self.platform_scopes is None else frozenset(self.platform_scopes)


class KnownDelegation(Model):
    """A delegation that is in force, as the issuer of its token knows it: by whom (`subject`), for which agent and
    scopes. `expires_at` is Unix time in seconds before the year 10000: so a time in milliseconds by mistake is refused.
    """

    subject: Name
    agent_id: Name
    scopes: Seq[Name] = ()
    expires_at: Annotated[int, Field(ge=0, lt=253_402_300_800)]


class Principals(Model):
    """The user and the agent of a request as the directory knows them, and the limits of their tenant.

    `delegation` is the delegation to whose token the request refers, or None. `unsafe` names the development stand-ins
    that answered; it is empty in production. `directory_version` is None if the directory has no versions.
    `approver_ids` are the ids that the user or the agent's owner, the same people, have as approvers.
    """

    user: KnownUser
    agent: KnownAgent
    delegation: KnownDelegation | None = None
    tenant: DirectoryLimits = DirectoryLimits()
    unsafe: Seq[Name] = ()
    directory_version: Count | None = None
    approver_ids: Seq[Name] = ()

    def same_as(self, other: Principals) -> bool:
        """Return whether `other` has the same identities. The version of the directory and the time at which the
        delegation expires do not count.
        """
        if self is other:
            return True
        ignored: dict[str, Any] = {"directory_version": other.directory_version}
        if self.delegation is not None and other.delegation is not None:
            ignored["delegation"] = self.delegation.model_copy(update={"expires_at": other.delegation.expires_at})
        return self.model_copy(update=ignored) == other

    def looked_up_again(self, now: Principals | None) -> dict[str, Any] | None:
        """Return `now`, which a later look-up found, as an entry states it: `SamePrincipals` if equal, else in full."""
        if now is None:
            return None
        # The values are compared only if their JSON differs: values that differ in form alone are equal.
        if (later := now.to_json()) != self.to_json() and now != self:
            return later
        version = self.directory_version
        return {"same": True} | ({"directory_version": version} if version is not None else {})

    def of_later(self, stated: Mapping[str, Any] | None) -> Principals | None:
        """Return the principals that `looked_up_again` stated as `stated`; None if it stated None."""
        if stated is None:
            return None
        return self if "same" in stated else Principals.model_validate(stated)


class SamePrincipals(Model):
    """The result of a later look-up that found exactly the user and the agent with which the run was admitted.
    `directory_version` is the version at the time of the entry; None if the directory has no versions.
    """

    same: Literal[True]
    directory_version: Count | None = None


class ApproverKey(Model):
    """A public key that verifies an approver's answers: a raw Ed25519 key in hex."""

    kid: Name
    public_key: str = Field(pattern=r"^[0-9a-f]{64}$")


class ApproverLogin(Model):
    """An account of an approver at an OIDC issuer: the `iss` and `sub` of its tokens."""

    issuer: Name
    subject: Name


class ApproverPasskey(Model):
    """A passkey (WebAuthn credential) of an approver: its id, its public key as a COSE key, and its user's handle, each
    as unpadded Base64url. It counts for answers that were given on a page of `origin` for the relying party `rp_id`.
    """

    credential_id: Base64Url
    public_key: Base64Url
    rp_id: Name
    origin: Name
    user_handle: Base64Url | None = None


class Approver(Model):
    """A person who is allowed to answer approvals. `granted_by` maps each role to the person who granted it. An answer
    is proved by one of `keys` or `passkeys`, or by one of `logins` where the deployment trusts its issuer. `user_ids`
    are the other ids of the same person, as a user, as the owner of agents or as another approver.
    """

    approver_id: Name
    roles: Seq[Name] = ()
    granted_by: Map[Name] = {}
    keys: Seq[ApproverKey] = ()
    logins: Seq[ApproverLogin] = ()
    passkeys: Seq[ApproverPasskey] = ()
    user_ids: Seq[Name] = ()


class SignerAssertion(Model):
    """The proof that a person made a statement: a compact JWS by their key, or `unsafe_local`, which proves nothing."""

    kind: Literal["jws", "unsafe_local"]
    token: str | None = Field(default=None, max_length=MAX_SIGNED_CHARS)

    @model_validator(mode="after")
    def _refuse_wrong_token(self) -> Self:
        if (self.kind == "jws") is not (self.token is not None):
            raise ValueError("an assertion has a token if it is a `jws`, and only then")
        return self


class LoginProof(Model):
    """What the runtime found in a token of a trusted OIDC issuer, whose nonce was the digest of the statement.

    `auth_time_s` (Unix seconds) is when the person logged in. The token is a secret and is not kept.
    """

    issuer: Name
    subject: Name
    auth_time_s: Count
    statement_digest: Digest
    token_digest: Digest


class PasskeyProof(Model):
    """What a passkey signed when a person answered: the parts of a WebAuthn assertion, each as unpadded Base64url."""

    credential_id: Base64Url
    authenticator_data: Base64Url
    client_data: Base64Url
    signature: Base64Url
    user_handle: Base64Url | None = None


class AnswerAssertion(Model):
    """The proof that a person gave an answer: as `SignerAssertion`, a recent login at a trusted issuer (`oidc`), or the
    assertion of a passkey (`webauthn`).
    """

    kind: Literal["webauthn", "jws", "oidc", "unsafe_local"]
    token: str | None = Field(default=None, max_length=MAX_SIGNED_CHARS)
    login: LoginProof | None = None
    passkey: PasskeyProof | None = None

    @model_validator(mode="after")
    def _refuse_wrong_proof(self) -> Self:
        if (self.kind == "jws") is not (self.token is not None):
            raise ValueError("an assertion has a token if it is a `jws`, and only then")
        if (self.kind == "oidc") is not (self.login is not None):
            raise ValueError("an assertion has a login if it is an `oidc`, and only then")
        if (self.kind == "webauthn") is not (self.passkey is not None):
            raise ValueError("an assertion has a passkey if it is a `webauthn`, and only then")
        return self


class Answered(Model):
    """An approver's answer to a question, as it is recorded. `assertion` holds the signature over the answer, or what
    the runtime found in the token of a login.
    """

    approver: Name
    verdict: Literal["approved", "denied"]
    reason: Text
    binding_digest: Digest
    assertion: AnswerAssertion


class Settled(Model):
    """An operator's finding about an effect of unknown outcome, as the journal keeps it.

    `by` is the operator's id in the directory, `assertion` their signature, and `output` the result of the call.
    """

    happened: bool
    by: Name
    evidence_ref: EvidenceRef
    output: OpenObject | None = None
    mutations: Seq[Name] = ()
    assertion: SignerAssertion | None = None

    @model_validator(mode="after")
    def _refuse_half_settled(self) -> Self:
        if self.happened and self.output is None:
            raise ValueError("an effect that happened has an output; state it")
        if not self.happened and (self.output is not None or self.mutations):
            raise ValueError("an effect that did not happen has no output and no mutations; drop them")
        return self


class HeldRoles(Model):
    """The roles of a tenant that at least one person holds: as a user of agents, and as an approver.

    Lint also reads the entries of the directory: `people` (the approvers), `agents`, `requesters` (the users) and
    `delegations`. Each is None if the directory cannot list them, such as users who come from tokens. `limits` are the
    limits of the tenant.
    """

    users: Seq[Name] = ()
    approvers: Seq[Name] = ()
    people: Seq[Approver] | None = None
    agents: Seq[KnownAgent] | None = None
    requesters: Seq[KnownUser] | None = None
    delegations: Seq[KnownDelegation] | None = None
    limits: DirectoryLimits = DirectoryLimits()
