"""Who asks, who acts, who may approve.

What a request says of identity is compared with what the directory knows and grants nothing by itself.
Source: API Contracts, "Run Context"; shared/design/contracts.md, "Who is asking".
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
"""From who asked to who acts."""


class UserDelegation(Model):
    """OAuth-style on-behalf-of authority of a user. It carries a token's reference, never the token."""

    auth_type: Literal["oauth2", "saml", "oidc", "service"]
    scopes: Seq[Name] = ()
    subject: Name | None = None
    token_ref: Name | None = None


class UserClaims(Model):
    """The user as the request states it; an open object, extra claims are kept and grant nothing."""

    model_config = ConfigDict(extra="allow")

    user_id: str = Field(min_length=1, max_length=256)
    delegation: UserDelegation | None = None
    role: Name | None = None
    tenure_days: Count | None = None


class IdentityClaim(Model):
    """`ctxid/1`: the short-lived claim that a run mints for itself (Ed25519, our own JWS); audit shows the hash."""

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
    """A user as the directory knows it. `scopes` are delegated to agents; `delegation_live` says that they hold now.

    Organisation, teams and projects say which artifacts the user sees; without an organisation there are none.
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
    """An agent as the directory knows it. `ceiling` is the highest approval mode that it may ever reach."""

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
    """Both identities of a request. `unsafe` names the development stand-ins that made it (empty in production)."""

    user: KnownUser
    agent: KnownAgent
    unsafe: Seq[Name] = ()


class ApproverKey(Model):
    """A public key that asserts an approver's answers: raw Ed25519, hex."""

    kid: Name
    public_key: str = Field(pattern=r"^[0-9a-f]{64}$")


class Approver(Model):
    """Somebody who may answer approvals. `granted_by` names who gave each role."""

    approver_id: Name
    roles: Seq[Name] = ()
    granted_by: Map[Name] = {}
    keys: Seq[ApproverKey] = ()
