"""The request that starts a run, and the RunContext of that run.

Source: API Contracts, "Run Context", "invokeAgent envelope".
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, Strict

from contextos.contracts.envelopes.identity import MAX_TOKEN_CHARS, AgentIdentity, HopClaim, UserClaims
from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.ids import PIN, CapabilityId, Form, RequestId, RunId, SessionId, Sha256Hex, TenantId, TraceId
from contextos.contracts.model import Amount, Cents, Count, ListOnly, Map, Model, Name, OpenObject, Positive, Seq
from contextos.contracts.trace import TraceContext

Bucket = Literal["policy", "tool", "evidence", "memory", "business", "session"]
BUCKETS: tuple[Bucket, ...] = ("policy", "tool", "evidence", "memory", "business", "session")


PACK_REF: Final = Form("pack ref", PIN.example, "[!-~]+", PIN.loose)
"""A reference to a pack: in the sealed form a pin. In the wire form it can be any name, so that admission can refuse an
unpinned reference with a record.
"""

PackRefs = Annotated[tuple[Annotated[str, PACK_REF], ...], Strict(False), Field(max_length=16), ListOnly(at_least=1)]


class BucketTokens(Model):
    """A number of tokens for each part of the prompt. One part cannot use the tokens of another."""

    policy: Count
    """Tokens for rules and controls."""
    tool: Count
    """Tokens for descriptions of tools."""
    evidence: Count
    """Tokens for evidence."""
    memory: Count
    """Tokens for recalled memories."""
    business: Count
    """Tokens for the business context."""
    session: Count
    """Tokens for the session."""


class AtomicUsage(Model):
    """The resources that a run has used so far."""

    tokens: Count
    """The tokens of prompts so far."""
    tool_calls: Count
    """The number of calls of tools so far."""
    latency_ms: Amount
    """The time worked so far, in milliseconds."""
    cost_cents: Cents
    """The cost of calls so far, in US cents with at most four decimals."""


class RunBudget(Model):
    """The limits of a run. Time that the run waits for a person does not count towards `wall_clock_ms`."""

    total_tokens: Positive
    """The most tokens that the prompt of the run can have."""
    bucket_tokens: BucketTokens
    """The tokens of each part of the prompt; parts that exceed `total_tokens` together are scaled down."""
    max_tool_calls: Count
    """The most calls of tools in the run."""
    max_replan_attempts: Count
    """The most plans after the first one."""
    wall_clock_ms: Positive
    """The longest time that the run works, in milliseconds, without time that it waits for a person."""
    max_cost_cents: Cents
    """The highest cost of all calls together, in US cents with at most four decimals."""


class BudgetInForce(RunBudget):
    """The limits of a run in force: the lowest of pack, request, deployment, agent and tenant.

    `limited_by` names `agent` or `tenant` for each limit that the directory set below the other three. `atomic_usage`
    is there only where a run is shown.
    """

    atomic_usage: AtomicUsage | None = None
    """The resources that the run has used, as its journal says; absent when the limits are set."""
    limited_by: Map[Literal["agent", "tenant"]] = {}
    """For each limit that the directory set, by its name: whether it is the limit of the `agent` or of the `tenant`."""

    def stated(self, name: str) -> str:
        """Return the sentence that states one limit in an error message, and whose it is if the directory set it."""
        owner = f" (the limit of the {self.limited_by[name]})" if name in self.limited_by else ""
        return f"`{name}` is {getattr(self, name)}{owner}"


class RunContext(Model):
    """Who acts in a run, for which tenant, with which authority, up to which approval mode, and within which budget."""

    run_id: RunId
    """The id of the run."""
    trace_id: TraceId
    """The id of the caller's trace."""
    session_id: SessionId | None = None
    """The id of the session to which the run belongs; absent, it has no session history and no session memory."""
    tenant_id: TenantId
    """The tenant for which the run acts."""
    user: UserClaims
    """The user for whom the run acts, as the directory knows them."""
    agent: AgentIdentity
    """The agent that acts, as the directory knows it, with the identity claim of the run."""
    intent: Name | None = None
    """The id of the intent of the request."""
    locale: Name | None = None
    """The locale of the request, such as `en-IN`."""
    safety_mode: ApprovalMode
    """The highest approval mode of the run: the lowest of the intent's, the pack's, the agent's and the caller's."""
    run_budget: BudgetInForce
    """The limits of the run in force."""
    metadata: OpenObject = {}
    """An open object; the runtime writes none and reads none."""


class InvokeInput(Model):
    """What the caller asks for. `context` holds facts that the caller states; they are not evidence."""

    intent: str = Field(min_length=1, max_length=128)
    """The id of the intent that is asked for; an unknown intent is refused."""
    message: str = Field(max_length=100_000)
    """The request in words, at most 100,000 characters; it is data for the planner and not an instruction."""
    channel: str | None = Field(default=None, max_length=64)
    """The channel from which the request came; the intent has to accept it."""
    locale: str | None = Field(default=None, max_length=35)
    """The locale of the request, such as `en-IN`; the intent has to support it."""
    context: OpenObject = {}
    """Facts that the caller states, any JSON object; they are asserted, and satisfy no requirement of evidence."""


class RuntimeHints(Model):
    """Limits that the caller requests. A hint can lower a limit and never raises one. `tools` restricts the run to some
    of the tools that it could use without the hint.
    """

    plan_timeout_ms: Positive | None = None
    """The longest time for a plan in milliseconds; absent, the limit of the task template counts."""
    max_session_duration_ms: Positive | None = None
    """The longest duration of the run in milliseconds, in every mode and with the time that people take; absent, the
    limit of the pack or the deployment counts.
    """
    max_tool_calls: Count | None = None
    """The most calls of tools; absent, the limit of pack and deployment counts."""
    max_payload_bytes: Positive | None = None
    """The most bytes of this request; absent, the limit of the deployment counts."""
    max_cost_cents: Cents | None = None
    """The highest cost in US cents with at most four decimals; absent, the limit of pack and deployment counts."""
    max_replan_attempts: Count | None = None
    """The most plans after the first one; absent, the limit of pack and deployment counts."""
    wall_clock_ms: Positive | None = None
    """The longest time that the run works in milliseconds, without waiting for people; absent, the limit of pack and
    deployment counts.
    """
    total_tokens: Positive | None = None
    """The most tokens of the prompt; absent, the limit of pack and deployment counts."""
    safety_mode: ApprovalMode | None = None
    """The highest approval mode that the caller accepts; it can only lower the mode of the run."""
    tools: Seq[CapabilityId] | None = None
    """The ids of the only tools that the run can use; absent, all tools that pack and policy allow."""


class Attachment(Model):
    """A large input by reference: the address and digest of a file."""

    artifact_id: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")
    """The id of the file; the evidence manifest names it."""
    media_type: str = Field(min_length=1, max_length=128)
    """The media type of the file, such as `application/pdf`."""
    sha256: Sha256Hex
    """The SHA-256 digest of the file, 64 hex digits."""
    uri: str = Field(min_length=1, max_length=2048)
    """The address of the file, at a place that belongs to the tenant; only the tool gateway fetches it."""


AttachmentList = Annotated[tuple[Attachment, ...], Strict(False), Field(max_length=64), ListOnly()]


class PackSelection(Model):
    """The packs that a request names. In the sealed form each is an exact version (API Contracts, "Context Pack
    reference").
    """

    context_pack_refs: PackRefs
    """The exact pins of one Context Pack and of the catalogs beside it; an unpinned ref is refused."""


class InvokeRequest(PackSelection):
    """The request to `invoke`. The runtime refuses unpinned refs (API Contracts, "invokeAgent envelope")."""

    request_id: RequestId
    """The id that the caller gives; the same id with the same body is the same run, and with another body it is
    refused.
    """
    session_id: SessionId | None = None
    """The session to which the run belongs; absent, it has no session history and no session memory."""
    tenant_id: TenantId
    """The tenant for which the run acts; users, agents and packs of other tenants are not found."""
    user: UserClaims
    """The user for whom the agent acts, compared with the directory."""
    agent: AgentIdentity
    """The agent that acts, compared with the directory."""
    hop_claim: Annotated[str, Field(max_length=MAX_TOKEN_CHARS)] | None = None
    """The signed claim of a partner whose agent calls this one; it is verified, used once and not kept."""
    hop: Annotated[HopClaim | None, Field(json_schema_extra={"readOnly": True})] = None
    """The verified content of `hop_claim`, which the runtime adds; a request that states it is refused."""
    input: InvokeInput
    """The intent, the message and the facts that the caller states."""
    environment: str | None = Field(default=None, min_length=1, max_length=64)
    """The environment for which the request is meant: `dev`, `staging` or `prod`. A deployment serves one environment
    and refuses a request that names another; absent, the served environment is meant.
    """
    mode: Literal["stream", "batch", "long_running"]
    """How the caller waits for the result: `stream` is answered by the events of the run, `batch` by its outcome, and a
    `long_running` run is stored, driven by an engine, and records checkpoints.
    """
    runtime: RuntimeHints
    """Limits that the caller requests; they can lower the limits in force and never raise them."""
    attachments: AttachmentList = ()
    """Large inputs by reference, at most 64."""
    trace: TraceContext
    """The caller's position in a distributed trace; no decision uses it."""
