"""The request that starts a run, and the RunContext of that run.

Source: API Contracts, "Run Context", "invokeAgent envelope".
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, Strict

from contextos.contracts.envelopes.identity import AgentIdentity, UserClaims
from contextos.contracts.envelopes.policy import ApprovalMode
from contextos.contracts.ids import PIN, CapabilityId, Form, RequestId, RunId, SessionId, Sha256Hex, TenantId, TraceId
from contextos.contracts.model import Amount, Cents, Count, ListOnly, Map, Model, Name, OpenObject, Positive, Seq
from contextos.contracts.trace import TraceContext

Bucket = Literal["policy", "tool", "evidence", "memory", "business", "session"]
BUCKETS: tuple[Bucket, ...] = ("policy", "tool", "evidence", "memory", "business", "session")


PACK_REF: Final = Form("pack ref", PIN.example, "[!-~]+", PIN.loose)
"""In the wire form any name, so that admission can refuse an unpinned one with a record; in the sealed form a pin."""

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
    tool_calls: Count
    latency_ms: Amount
    cost_cents: Cents


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
    is what the run had used when they were set: nothing.
    """

    atomic_usage: AtomicUsage | None = None
    limited_by: Map[Literal["agent", "tenant"]] = {}

    def stated(self, name: str) -> str:
        """Return the sentence that states one limit in an error message, and whose it is if the directory set it."""
        whose = f" (the limit of the {self.limited_by[name]})" if name in self.limited_by else ""
        return f"`{name}` is {getattr(self, name)}{whose}"


class RunContext(Model):
    """Who acts in a run, for which tenant, with which authority, up to which approval mode, and within which budget."""

    run_id: RunId
    trace_id: TraceId
    session_id: SessionId | None = None
    tenant_id: TenantId
    user: UserClaims
    agent: AgentIdentity
    intent: Name | None = None
    locale: Name | None = None
    safety_mode: ApprovalMode
    run_budget: BudgetInForce
    metadata: OpenObject = {}


class InvokeInput(Model):
    """What the caller asks for. `context` holds facts that the caller states; they are not evidence."""

    intent: str = Field(min_length=1, max_length=128)
    message: str = Field(max_length=100_000)
    channel: str | None = Field(default=None, max_length=64)
    locale: str | None = Field(default=None, max_length=35)
    context: OpenObject = {}


class RuntimeHints(Model):
    """Limits that the caller requests. A hint can lower a limit and never raises one. `tools` are the only tools that
    the run can use, of those that it could use without the hint.
    """

    plan_timeout_ms: Positive | None = None
    max_session_duration_ms: Positive | None = None
    max_tool_calls: Count | None = None
    max_payload_bytes: Positive | None = None
    max_cost_cents: Cents | None = None
    max_replan_attempts: Count | None = None
    wall_clock_ms: Positive | None = None
    total_tokens: Positive | None = None
    safety_mode: ApprovalMode | None = None
    tools: Seq[CapabilityId] | None = None


class Attachment(Model):
    """A large input by reference: the address and digest of a file."""

    artifact_id: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")
    media_type: str = Field(min_length=1, max_length=128)
    sha256: Sha256Hex
    uri: str = Field(min_length=1, max_length=2048)


Attachments = Annotated[tuple[Attachment, ...], Strict(False), Field(max_length=64), ListOnly()]


class PackSelection(Model):
    """The packs that a request names. In the sealed form each is an exact version (API Contracts, "Context Pack
    reference").
    """

    context_pack_refs: PackRefs


class InvokeRequest(PackSelection):
    """The request to `invoke`. The runtime refuses unpinned refs (API Contracts, "invokeAgent envelope")."""

    request_id: RequestId
    session_id: SessionId | None = None
    tenant_id: TenantId
    user: UserClaims
    agent: AgentIdentity
    input: InvokeInput
    mode: Literal["stream", "batch", "long_running"]
    runtime: RuntimeHints
    attachments: Attachments = ()
    trace: TraceContext
