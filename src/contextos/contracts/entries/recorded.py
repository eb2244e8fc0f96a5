"""The answers of recorded entries: what ports, operators and users said, as a run read it."""

from __future__ import annotations

from typing import Literal, TypeVar

from pydantic import BaseModel, model_validator

from contextos.contracts.envelopes.artifacts import PinnedContent
from contextos.contracts.envelopes.identity import Approver, IdentityClaim, Principals
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.envelopes.slots import SelectionAct
from contextos.contracts.envelopes.tool import ToolResultEnvelope
from contextos.contracts.model import Amount, Count, Map, Model, Name, OpenObject, Positive, Seq, Text

BodyT = TypeVar("BodyT", bound=BaseModel)


class DescribedDeployment(Model):
    """What the record of a run shows of its deployment. Old journals have neither `semantics` nor `planner`."""

    runtime_version: Name
    profile: Name
    unsafe: Seq[Name]
    limits: Map[Amount]
    semantics: Positive | None = None
    planner: Name | None = None


class ReceivedRun(Model):
    """`run.received`: the request in its wire form, its fingerprint and the deployment that took it."""

    request: OpenObject
    fingerprint: Text
    deployment: DescribedDeployment


class ResumedRun(Model):
    """`run.resumed`: why another driver took over."""

    cause: Name


class RequestedCancel(Model):
    """`run.cancel_requested`: who asked a waiting run to stop, and why."""

    by: Name
    reason: Text


class ResolvedIdentity(Model):
    """`identity.resolved`, at admission and for a slot: both identities, or None where the directory knows neither."""

    principals: Principals | None
    claim: IdentityClaim | None = None


class RedeemedIdentity(Model):
    """`identity.resolved` of a redemption: requester and approver as they are now, or `late` past the deadline."""

    principals: Principals | None
    approver: Approver | None
    unsafe_local: bool
    late: bool = False


class DispatchIdentity(Model):
    """`identity.resolved` right before a write: both identities, and the names of the pins that changed."""

    principals: Principals | None
    policies_version: Count
    changed: Seq[Name]


class SettlingOperator(Model):
    """`identity.resolved` of a settlement: the operator as the directory knows them now."""

    operator: Approver | None
    unsafe_local: bool


class PinsFailure(Model):
    """Why nothing was pinned."""

    code: Name
    detail: Text


class PinnedPolicy(Model):
    """A policy in force above the pack when the run was pinned."""

    level: Level
    ref: Name
    digest: Name


def _exactly_one(body: BodyT, *names: str) -> BodyT:
    """Refuse a body that has none of these members, or several."""
    if sum(getattr(body, name) is not None for name in names) != 1:
        raise ValueError(f"exactly one of {', '.join(names)} is needed")
    return body


class PinnedRun(Model):
    """`run.pinned`: everything the run uses, by exact reference and content address, or why it cannot be pinned."""

    snapshot: Name
    semantics: Positive
    runtime_version: Name
    profile: Name
    estimator: Name
    pack_ref: Name | None = None
    pins: Map[Name] = {}
    policies: Seq[PinnedPolicy] = ()
    publishers: Seq[Name] = ()
    failure: PinsFailure | None = None

    @model_validator(mode="after")
    def _is_pinned_or_not(self) -> PinnedRun:
        return _exactly_one(self, "pack_ref", "failure")


class AnsweredSlot(Model):
    """`slot.answered`: the selection that the user made."""

    selection_id: Name


class SelectedForSlot(Model):
    """`slot.selected`: the selection with its content, or why there is none."""

    act: SelectionAct | None = None
    pinned: Seq[PinnedContent] = ()
    refused: Text | None = None
    code: Name | None = None

    @model_validator(mode="after")
    def _is_selected_or_not(self) -> SelectedForSlot:
        return _exactly_one(self, "act", "refused")


class SeenEpoch(Model):
    """The epoch of the store at a look-up; an empty id and version 0 where no restore was ever recorded."""

    id: Name
    version: Count
    since_us: Count


class OperationLookup(Model):
    """`act.looked_up`: what the idempotency table knows of an operation. Old journals hold no epoch."""

    cancelled: bool
    denied: bool
    state: Literal["free", "claimed", "completed", "unusable", "other_body"]
    version: Count
    mutations: Seq[Name]
    output: OpenObject | None = None
    epoch: SeenEpoch | None = None


class AnsweredPlanner(Model):
    """`planner.answered`: what a planner proposed, as it sent it, or why its answer cannot be recorded."""

    proposal: OpenObject | None = None
    refused: Text | None = None

    @model_validator(mode="after")
    def _is_proposed_or_not(self) -> AnsweredPlanner:
        return _exactly_one(self, "proposal", "refused")


class ReturnedCall(Model):
    """`tool.returned`: the outcome of one attempt.

    `happened` is true if an effect took place. `waited_us` is the time that the call waited for its turn.
    """

    outcome: Literal["returned", "not_sent", "unknown"]
    envelope: ToolResultEnvelope
    output_digest: Name
    cost_cents: Amount
    happened: bool
    waited_us: Count = 0


class ExpiredApproval(Model):
    """`approval.expired`: nobody answered before the deadline."""

    expired: Literal[True]
