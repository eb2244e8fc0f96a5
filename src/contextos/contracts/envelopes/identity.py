"""Identity: the user, the agent and the approvers.

The identity in a request grants nothing by itself; it is compared with the directory.
Source: API Contracts, "Run Context"; docs/design/contracts.md, "Who is asking".
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, Strict

from contextos.contracts.envelopes.artifacts import Party
from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.ids import AgentUrn, Digest, RunId, SessionId, SpiffeId, TenantId
from contextos.contracts.model import Cents, Count, ListOnly, Map, Model, Name, Seq

Lifecycle = Literal["active", "suspended", "retired"]


class Principal(Model):
    """One link of a principal chain."""

    kind: Literal["user", "service", "agent", "automation"]
    id: str = Field(min_length=1, max_length=256)
    tenant_id: TenantId | None = None
    display: str | None = Field(default=None, max_length=256)


Chain = Annotated[tuple[Principal, ...], Strict(False), Field(max_length=32), ListOnly()]
"""From the principal who made the request to the principal who executes it."""


class UserDelegation(Model):
    """The authority that a user delegates, as in OAuth. It holds a reference to a token, never the token."""

    auth_type: Literal["oauth2", "saml", "oidc", "service"]
    scopes: Seq[Name] = ()
    subject: Name | None = None
    token_ref: Name | None = None


class UserClaims(Model):
    """The user as the request states it. Extra claims are kept and grant nothing."""

    model_config = ConfigDict(extra="allow")

    user_id: str = Field(min_length=1, max_length=256)
    delegation: UserDelegation | None = None
    role: Name | None = None
    tenure_days: Count | None = None


class IdentityClaim(Model):
    """`ctxid/1`: the short-lived claim that a run signs for its adapters (an Ed25519 JWS). Audit sees its hash only.

    `nbf` (not before) and `exp` (expires at) are Unix time in seconds.
    """

    version: Literal["ctxid/1"] | None = None
    iss: Name | None = None
    sub: AgentUrn
    aud: Name | None = None
    run_id: RunId
    session_id: SessionId | None = None
    tenant_id: TenantId
    principal_chain: Chain | None = None
    scopes: Seq[Name] = ()
    nbf: Count | None = None
    exp: Count | None = None
    kid: Name | None = None
    claim_hash: Digest

    required_when_sealed: ClassVar[tuple[str, ...]] = ("version", "iss", "principal_chain", "nbf", "exp", "kid")


class AgentIdentity(Model):
    """The agent as the request or the RunContext states it."""

    agent_id: str = Field(min_length=1, max_length=256)
    agent_urn: AgentUrn | None = None
    workload_identity: SpiffeId
    role: Name | None = None
    token_ref: Name | None = None
    lifecycle: Lifecycle | None = None
    principal_chain: Chain | None = None
    identity_claim: IdentityClaim | None = None


class KnownUser(Model):
    """A user as the directory knows them. `scopes` are delegated to agents while `delegation_live` is true.

    Organisation, teams and projects decide which artifacts the user sees. A user without an organisation sees none.
    """

    user_id: Name
    role: Name
    roles: Seq[Name] = ()
    scopes: Seq[Name] = ()
    delegation_live: bool = False
    organization_id: Party | None = None
    team_ids: Seq[Party] = ()
    project_ids: Seq[Party] = ()
    platform_admin: bool = False


class KnownAgent(Model):
    """An agent as the directory knows it. `ceiling` is the highest approval mode that it is allowed to use."""

    agent_id: Name
    agent_urn: AgentUrn
    workload_identity: SpiffeId
    role: Name
    owner: Name
    lifecycle: Lifecycle
    ceiling: ApprovalMode
    scopes: Seq[Name] = ()
    max_cost_cents: Cents | None = None


class Principals(Model):
    """The user and the agent of a request as the directory knows them.

    `unsafe` names the development stand-ins that answered; it is empty in production.
    """

    user: KnownUser
    agent: KnownAgent
    unsafe: Seq[Name] = ()


class ApproverKey(Model):
    """A public key that verifies an approver's answers: a raw Ed25519 key in hex."""

    kid: Name
    public_key: str = Field(pattern=r"^[0-9a-f]{64}$")


class Approver(Model):
    """A person who is allowed to answer approvals. `granted_by` maps each role to the person who granted it."""

    approver_id: Name
    roles: Seq[Name] = ()
    granted_by: Map[Name] = {}
    keys: Seq[ApproverKey] = ()
