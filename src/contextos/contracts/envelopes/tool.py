"""Tools: what an adapter declares, and the two envelopes of a governed call.

Source: API Contracts, "ToolCallEnvelope", "ToolResultEnvelope"; shared/design/contracts.md, "Run".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from contextos.contracts.envelopes.identity import Chain
from contextos.contracts.envelopes.policy import APPROVAL_MODES, ApprovalMode
from contextos.contracts.ids import (
    DIGEST,
    CapabilityId,
    Digest,
    Form,
    IdempotencyKey,
    PolicyDecisionId,
    RunId,
    SessionId,
    ToolCallId,
    TraceId,
)
from contextos.contracts.model import (
    MAX_NAME_CHARS,
    Amount,
    Cents,
    Model,
    Name,
    NonEmpty,
    OpenObject,
    Positive,
    Seq,
    Text,
)
from contextos.contracts.refs import EvidenceRef

AUTH_REF: Final = Form(
    "auth ref", "claim_hash:sha256:" + "b2a1" * 16, "[!-~]+", f"[a-z_]+:{DIGEST.sealed}", max_chars=MAX_NAME_CHARS
)
"""Names a claim or credential by its hash; what it stands for is never written."""

AuthRef = Annotated[str, AUTH_REF]

_WRITES: Final = ("local_write", "destructive")
"""Modes that only a write declares; a read can be `network` or `delegated`."""

ToolStatus = Literal["ok", "completed", "paused", "blocked", "rejected", "failed", "error"]
CapabilityKind = Literal["read", "write"]
RiskLevel = Literal["read", "write_reversible", "write_irreversible"]


class Idempotency(Model):
    """What may be done after a lost reply.

    `keyed`: the same key may be sent again within `key_ttl_s` and acts once. `lookup`: the outside can be asked what a
    key did; its "nothing" permits a re-send only with `honours_not_after` (it refuses calls after the dispatch's
    `not_after`). `none`: only a person can tell. `scope` and `identity_args` say what makes two calls the same act.
    """

    strategy: Literal["keyed", "lookup", "none"]
    key_ttl_s: Positive = 86_400
    honours_not_after: bool = False
    scope: Literal["run", "session", "subject", "tenant"] = "run"
    identity_args: Seq[Name] | None = None


class CapabilityDefinition(Model):
    """One capability of an adapter. `approval_mode` is the highest that it can reach; `produces` names evidence.

    Refuses one whose kind, risk and mode contradict each other: a write that calls itself a read would pass every gate.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_]{1,64}$")
    kind: CapabilityKind
    risk_level: RiskLevel
    approval_mode: ApprovalMode
    input_schema: OpenObject
    output_schema: OpenObject
    idempotency: Idempotency
    timeout_s: int = Field(default=10, ge=2, le=120)
    cost_cents: Cents = 0
    required_scopes: Seq[Name] = ()
    produces: Seq[Name] = ()
    description: str = Field(default="", max_length=2000)

    @model_validator(mode="after")
    def _is_what_it_says(self) -> Self:
        if self.kind == "write" and (self.approval_mode == "read_only" or self.risk_level == "read"):
            raise ValueError("a write is neither `read_only` nor of risk `read`; declare what it can do")
        if self.kind == "read" and (self.approval_mode in _WRITES or self.risk_level != "read"):
            raise ValueError("a read is of risk `read` and reaches no mode of a write; declare it as a write")
        return self


class AdapterDefinition(Model):
    """An adapter as it describes itself now. Its content address is pinned by every run."""

    adapter_id: str = Field(pattern=r"^[A-Za-z0-9_]{1,64}$")
    type: Literal["function", "openapi", "mcp", "a2a", "custom"]
    version: Name
    external: bool = False
    capabilities: NonEmpty[CapabilityDefinition]


class ToolError(Model):
    """Why a call did not give an output. `code` is one of the failures of `contracts.verdicts` or the adapter's own."""

    code: Name
    message: Text
    retryable: bool = False
    pointer: Text | None = None
    remedy: Text | None = None


class AdapterReply(Model):
    """What an adapter answered: an output, or a business error that it states."""

    output: OpenObject | None = None
    error: ToolError | None = None
    mutations: Seq[Name] = ()
    cost_cents: Cents = 0


@dataclass(frozen=True, slots=True)
class CallContext:
    """What travels with a call beside its arguments. `claim` mints the run's signed `ctxid/1`, `headers`
    gives the W3C trace headers of this call; both are made when an adapter asks, and never recorded. `is_late` says of
    a write that waited in the adapter whether it must not be sent any more: by the runtime's clock it is past
    `not_after_us`. What is only asked after, or sent again under its key, is never late."""

    tenant_id: str
    run_id: str
    tool_call_id: str
    idempotency_key: str | None
    not_after_us: int
    timeout_ms: int
    headers: Callable[[], dict[str, str]] = dict
    claim: Callable[[], str] = str
    is_late: Callable[[], bool] = bool


class ToolCallEnvelope(Model):
    """A governed call as the Executor makes it and the Tool Gateway checks it."""

    envelope_version: Literal["contextos.tool_call.v1"]
    tool_call_id: ToolCallId
    run_id: RunId
    trace_id: TraceId
    session_id: SessionId | None = None
    capability_id: CapabilityId
    args: OpenObject
    principal_chain: Chain
    approval_mode_requested: ApprovalMode
    approval_mode_effective: ApprovalMode
    approval_mode_highest: ApprovalMode
    policy_decision_id: PolicyDecisionId | None = None
    evidence_refs: Seq[EvidenceRef]
    idempotency_key: IdempotencyKey | None = None
    auth_ref: AuthRef | None = None
    metadata: OpenObject = {}

    required_when_sealed: ClassVar[tuple[str, ...]] = ("policy_decision_id", "auth_ref")

    def sealing_faults(self) -> Iterator[tuple[str, str]]:
        """One identity where two belong, a mode above the declared one, a write without a key, two keys for one act."""
        kinds = {principal.kind for principal in self.principal_chain}
        if "agent" not in kinds or len(kinds) == 1:
            yield "principal_chain", "a governed call carries the agent and whom it acts for; name both"
        risk = APPROVAL_MODES.index
        if risk(self.approval_mode_effective) > risk(self.approval_mode_highest):
            yield "approval_mode_effective", "the effective mode is above the highest that the capability declares"
        if self.idempotency_key is None and self.approval_mode_highest in _WRITES:
            yield "idempotency_key", "a write without an idempotency key could happen twice; derive its key first"
        if self.idempotency_key and self.args.get("idempotency_key", self.idempotency_key) != self.idempotency_key:
            yield "idempotency_key", "args and envelope carry different idempotency keys; send one act under one key"


class Citation(Model):
    """Where a result can be cited from."""

    evidence_ref: EvidenceRef


class ToolResultEnvelope(Model):
    """What the Tool Gateway returns; `mutations` names side effects, and replay consumes them from the tape."""

    envelope_version: Literal["contextos.tool_result.v1"]
    tool_call_id: ToolCallId
    run_id: RunId
    trace_id: TraceId
    session_id: SessionId | None = None
    capability_id: CapabilityId
    status: ToolStatus
    output: Any = None
    error: ToolError | None = None
    artifacts: Seq[OpenObject] = ()
    citations: Seq[Citation] = ()
    mutations: Seq[Name] = ()
    risk_tags: Seq[Name] = ()
    policy_decision_id: PolicyDecisionId | None = None
    latency_ms: Amount
    metadata: OpenObject = {}

    def sealing_faults(self) -> Iterator[tuple[str, str]]:
        """A status that contradicts `mutations` or `error` (API Contracts, "ToolResultEnvelope statuses")."""
        if self.status == "ok" and self.mutations:
            yield "mutations", "status `ok` says that there was no side effect; use `completed`"
        if self.status in ("ok", "completed") and self.error is not None:
            yield "error", f"status `{self.status}` has no error; use `error` or `failed`"
        if self.status in ("blocked", "rejected", "failed", "error") and self.error is None:
            yield "error", f"status `{self.status}` does not say why; give the error"


class Answered(Model):
    """What an approver said to an open question, as the journal keeps it; `assertion` is how they vouch for it."""

    approver: Name
    verdict: Literal["approved", "denied"]
    reason: Text
    binding_digest: Digest
    assertion: OpenObject


class Settled(Model):
    """What an operator found out about an effect of unknown outcome, as the journal keeps it.

    `by` is the operator's id in the directory, `assertion` how they vouch for it, `output` what the call gave back.
    """

    happened: bool
    by: Name
    evidence_ref: EvidenceRef
    output: OpenObject | None = None
    mutations: Seq[Name] = ()
    assertion: OpenObject = {}

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if self.happened and self.output is None:
            raise ValueError("what happened gave an output; state it")
        if not self.happened and (self.output is not None or self.mutations):
            raise ValueError("what did not happen has no output and no mutations; drop them")
        return self


def capability_id(adapter: AdapterDefinition, capability: CapabilityDefinition) -> str:
    """`adapter.capability`, the name that plans, manifests and policy use."""
    return f"{adapter.adapter_id}.{capability.name}"
