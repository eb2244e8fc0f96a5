"""Acts of people on one run: stop it, ask its question again, settle its effect, drive it again, erase an entry."""

from __future__ import annotations

from functools import partial
from typing import Final

from contextos.contracts.model import Model, Name, OpenObject, Positive, Seq
from contextos.contracts.refs import EvidenceRef
from contextos.deployment.acts.act import ActProposal
from contextos.deployment.operator import SettlementInput, erase_entry, request_cancel, retry_run, settle_effect
from contextos.deployment.queries.run_view import RunView
from contextos.errors import ApprovalRefused, NotFound
from contextos.service.operations.operation import OF_RUN, ActReason, Asked, Nothing, Operation, OperationFunction
from contextos.service.reasks import reask_question
from contextos.service.views import RequestOutcome
from contextos.trust.approvals.assertion import OPERATOR_ROLE


class ReasonDraft(Model):
    """The reason for which a run is to stop, or for which its question is to be asked again."""

    reason: ActReason = ""


class SettlementDraft(Model):
    """Whether the effect happened, and the reference of the evidence for it, such as `artifact:ticket_4711#rev_1`.

    If the effect happened, `output` is what the call returned, and `mutations` names what it changed.
    """

    happened: bool
    evidence_ref: EvidenceRef
    output: OpenObject | None = None
    mutations: Seq[Name] = ()


class ErasureDraft(Model):
    """The number of the entry whose content is to be erased, and the reason."""

    seq: Positive
    reason: ActReason = ""


class ErasedDocument(Model):
    """The entry whose content is gone. Its hash is still there, so the run verifies."""

    run_id: str
    seq: int


async def cancel(asked: Asked, draft: ReasonDraft) -> ActProposal[RequestOutcome]:
    """Request that a run stops. An effect that was sent is not interrupted. The user of the run, the owner of its agent
    and every operator may do so.
    """
    deployment = asked.app.deployment
    act = request_cancel.propose(deployment, asked.tenant_id, asked.name, by=asked.by, reason=draft.reason)
    return (await act).then(partial(_drive_run, asked))


async def reask(asked: Asked, draft: ReasonDraft) -> ActProposal[RequestOutcome]:
    """Have the void question of a run asked again, under what is in force now. The user of the run, the owner of its
    agent and every operator may do so.
    """
    deployment = asked.app.deployment
    act = reask_question.propose(deployment, asked.tenant_id, asked.name, by=asked.by, reason=draft.reason)
    return (await act).then(partial(_drive_run, asked))


async def settle(asked: Asked, draft: SettlementDraft) -> ActProposal[RequestOutcome]:
    """Record whether an effect of unknown outcome happened; the run then goes on. Only an operator who is not behind
    the run may do so.
    """
    by = asked.by
    settlement = SettlementInput(draft.happened, by.id, draft.evidence_ref, draft.output, tuple(draft.mutations))
    act = settle_effect.propose(
        asked.app.deployment, asked.tenant_id, asked.name, settlement, vouch=by.vouch, verified=asked.verified
    )
    return (await act).then(partial(_drive_run, asked))


async def retry(asked: Asked, _nothing: Nothing) -> ActProposal[RequestOutcome]:
    """Take a run off the list of dead letters. An engine drives it; if it fails again, it is put back."""
    try:
        proposal = await retry_run.propose(asked.app.deployment, asked.tenant_id, asked.name, by=asked.by)
    except NotFound:
        # The caller sees the run, so only the list can lack it.
        detail = "the run is not on the list of dead letters; an engine drives it when it is due"
        raise ApprovalRefused("not_waiting", detail) from None
    return proposal.then(partial(_drive_run, asked))


async def erase(asked: Asked, draft: ErasureDraft) -> ActProposal[ErasedDocument]:
    """Erase the content of one entry of a run, and the copy of its call for later runs. The run still verifies."""

    async def erased(_: None) -> ErasedDocument:
        return ErasedDocument(run_id=asked.name, seq=draft.seq)

    act = erase_entry.propose(
        asked.app.deployment, asked.tenant_id, asked.name, draft.seq, by=asked.by, reason=draft.reason
    )
    return (await act).then(erased)


async def _drive_run(asked: Asked, after: RunView | None) -> RequestOutcome:
    """Have an engine drive the run, and return its state after the act; None: it is read."""
    asked.app.engine.submit(asked.tenant_id, asked.name)
    return RequestOutcome.of_view(after or await asked.app.deployment.view(asked.tenant_id, asked.name))


def _act_on_run(name: str, step: str, draft: type[Model], run: OperationFunction, signs: str, *roles: str) -> Operation:
    """Return the operation at `/runs/{run}/<step>`, after which an engine drives the run."""
    address, answer = ("POST", f"/runs/{{run}}/{step}"), RequestOutcome
    return Operation(name, address, roles, draft, answer, run, signs=signs, status=202, about=OF_RUN)


RUN_OPERATIONS: Final = (
    _act_on_run("runs.cancel", "cancel", ReasonDraft, cancel, "stop a run"),
    _act_on_run("runs.reask", "reask", ReasonDraft, reask, "have the void question of a run asked again"),
    _act_on_run("runs.settle", "settlement", SettlementDraft, settle, "settle the effect for which a run waits"),
    _act_on_run("runs.retry", "retry", Nothing, retry, "have a run driven again that failed for good", OPERATOR_ROLE),
    Operation(
        "runs.erase",
        ("POST", "/runs/{run}/erase"),
        (OPERATOR_ROLE,),
        ErasureDraft,
        ErasedDocument,
        erase,
        signs="erase the content of an entry",
        about=OF_RUN,
    ),
)
