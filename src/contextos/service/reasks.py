"""Have a void question asked again: one act of a person, after which the run goes on under what is in force now.

The run judges and asks about the same call anew, so what it sent before is not sent again.
Source: docs/adr/0064-a-call-is-bound-to-the-code-that-it-uses.md.
"""

from __future__ import annotations

from dataclasses import replace

from contextos.contracts.acts import ProposedAct
from contextos.contracts.documents.operations import APPROVALS
from contextos.contracts.journal import Batch, Draft
from contextos.deployment.acts.act import Act, Actor, ActProposal, propose_act
from contextos.deployment.acts.checks import refuse_reason
from contextos.deployment.deployment import Deployment
from contextos.deployment.operator import open_question
from contextos.deployment.preview import void_question
from contextos.deployment.queries.run_view import run_principals
from contextos.errors import ApprovalRefused
from contextos.trust.journal.chain import append, refuse_other_environment, refuse_unknown_semantics
from contextos.trust.recorded_time import recorded_now_us


@Act
async def reask_question(app: Deployment, tenant_id: str, run_id: str, *, by: Actor, reason: str) -> ActProposal[None]:
    """Have a void question asked again: the run pins what is in force now, and judges and asks about the call anew.

    No answer to the old question counts any more. The run's user, the agent's owner and every operator may do so.

    Raises:
        ApprovalRefused: the run waits for no approval (`not_waiting`, `already_answered`, `expired`), the question
            still holds (`not_void`), or as `prove_act`.
        InvalidInput: the reason is too long or contains unsafe text.
        OtherEnvironment: as `answer_approval`.
        UnknownSemantics: only a runtime of another version can judge whether the question holds.
        NotFound: no such run in this tenant.
        Conflict: another process changed the run at the same moment; look at it again.
    """
    refuse_reason(reason)
    question = await open_question(app, tenant_id, run_id)
    entries, document = question.entries, question.document
    refuse_unknown_semantics(entries)
    refuse_other_environment(entries, app.config.environment)
    arguments = {"run": run_id, "binding_digest": question.binding_digest, "reason": reason}
    proposed = ProposedAct("approval.reasked", run_id, arguments, len(entries))
    void = await void_question(app, tenant_id, entries)
    if void is None:
        raise ApprovalRefused("not_void", f"the question of `{run_id}` still holds; answer it, or cancel the run")
    principals = run_principals(entries)
    own_run = principals is not None and by.id in (principals.user.user_id, principals.agent.owner)
    answer = {"by": by.id, "reason": reason, "changed": list(void.changed)}
    cancelled = APPROVALS.write(document.body.approval_id, document.version, replace(document.body, state="cancelled"))

    async def write(control: tuple[str, Draft]) -> None:
        at_us, salt = await recorded_now_us(app.ports, tenant_id), app.ports.entropy.take(16)
        entry = append(entries, "approval.reasked", question.key, by=by.id, answer=answer, at_us=at_us, salt=salt)
        now_us = app.ports.clock.now_us()
        await app.ports.stores.tenant(tenant_id).commit(
            Batch(run=run_id, entries=(entry,), writes=(cancelled,), shared=(control,), wake_at_us=now_us)
        )

    return propose_act(app.ports, app.config, tenant_id, proposed, by, write, own_run=own_run)
