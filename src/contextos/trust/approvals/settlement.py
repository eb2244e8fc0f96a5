"""Settlements: an operator states whether an effect of unknown outcome happened, and signs the statement.

A settlement decides whether money can move again, so it is checked like an approval. A key that the directory lists for
an operator must have signed exactly this statement about exactly this call. The people and the agent behind the run
cannot settle it. `unsafe_local` is a settlement without a key, for development.
Source: docs/design/contracts.md, "Run" (`effect_uncertain`), "Approval modes".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical, same_json
from contextos.contracts.envelopes.identity import Approver, Principals, Settled, SignerAssertion
from contextos.contracts.envelopes.tool import StatedCall
from contextos.contracts.journal import CONTROL, Draft
from contextos.contracts.model import final_fields
from contextos.contracts.ports.outside import Signer
from contextos.contracts.ports.seams import Journal
from contextos.contracts.scope import RunScope
from contextos.contracts.statements.settlements import SETTLEMENT_TYP, settlement_statement
from contextos.errors import ApprovalRefused, InvalidInput
from contextos.trust.approvals.assertion import OPERATOR_ROLE, grant_fault
from contextos.trust.identity.jws import sign_compact, verify_compact


def settled_line(run_id: str, settled: Settled, at_us: int, salt: bytes) -> tuple[str, Draft]:
    """Return the entry of `control` about a settlement, whose signature is in the journal of the run."""
    fields = {"run": run_id, "by": settled.by, "happened": settled.happened, "evidence_ref": settled.evidence_ref}
    return CONTROL, Draft("effect.settled", run_id, at_us, settled.by, canonical(fields), salt)


def sign_settlement(private_key: bytes, kid: str, statement: Mapping[str, Any]) -> str:
    """Sign a settlement statement with an operator's raw Ed25519 private key; return the compact JWS.

    Its `typ` differs from the `typ` of an approval, so neither can be used as the other.
    """
    return sign_compact(private_key, kid, SETTLEMENT_TYP, statement)


def barred_settlers(principals: Principals) -> frozenset[str]:
    """Return the ids that cannot settle an effect of a run: of its user, agent and agent's owner, also as approvers."""
    user, agent = principals.user, principals.agent
    return frozenset({user.user_id, agent.agent_urn, agent.agent_id, agent.owner, *principals.approver_ids})


def is_barred(by: str, person: Approver | None, barred: Collection[str]) -> bool:
    """Return whether one of `barred` is `by`, or another name under which the directory lists this `person`."""
    return by in barred or (person is not None and not set(barred).isdisjoint(person.user_ids))


def operator_fault(person: Approver | None, by: str) -> ApprovalRefused | None:
    """Return why the person `by` is not an operator, or None. `person` is the directory's entry for `by`."""
    if person is None or person.approver_id != by:
        return ApprovalRefused("not_operator", f"`{by}` is not known in this tenant; ask an operator")
    if OPERATOR_ROLE not in person.roles:
        return ApprovalRefused("not_operator", f"`{by}` does not hold the role `{OPERATOR_ROLE}`; ask an operator")
    return grant_fault(person, OPERATOR_ROLE)


def settlement_fault(
    person: Approver | None,
    barred: Collection[str],
    statement: Mapping[str, Any],
    assertion: SignerAssertion | None,
    *,
    unsafe_local: bool,
) -> ApprovalRefused | None:
    """Return why an operator's settlement of an effect is refused, or None. Called when it arrives and before it is
    used.

    `person` is the directory's entry for the signer; `barred` comes from `barred_settlers`. `unsafe_local`: the
    deployment accepts settlements without a key.
    """
    settler = statement["by"]
    if is_barred(settler, person, barred):
        return ApprovalRefused(
            "self_settlement", f"`{settler}` is the requester, the agent or its owner; ask another operator"
        )
    fault = operator_fault(person, settler)
    if person is None or fault:
        return fault
    if assertion is None:
        return ApprovalRefused("assertion_invalid", "the settlement has no assertion; sign it")
    if assertion.token is None:
        detail = "this deployment does not accept settlements without the operator's key"
        return None if unsafe_local else ApprovalRefused("unsafe_not_allowed", detail)
    keys = {key.kid: bytes.fromhex(key.public_key) for key in person.keys}
    if not same_json(verify_compact(assertion.token, keys, SETTLEMENT_TYP), dict(statement)):
        return ApprovalRefused("assertion_invalid", "the operator's key did not sign this settlement")
    return None


@final_fields
class SettlementCheck:
    """Checks the settlements (operators' statements about effects of unknown outcome) of one run before they are used,
    because any process with access to the store can append one. `unsafe` lists the unsafe settings of the deployment.
    """

    journal: Journal
    scope: RunScope
    signer: Signer
    unsafe: tuple[str, ...]

    async def fault(self, key: str, sent: StatedCall, answer: Mapping[str, Any]) -> str | None:
        """Return why the settlement `answer` of the dispatched call `sent` is refused, or None.

        The directory's entry for the operator is looked up and recorded; a replay uses the recorded one.
        """
        try:
            settled = parse(Settled, dict(answer))
        except InvalidInput as error:
            return f"it is not a settlement: {error}"

        async def look_up_operator() -> dict[str, Any]:
            person = await self.signer(settled.by)
            return {
                "operator": person.to_json() if person else None,
                "unsafe_local": "unsafe_local_approvals" in self.unsafe,
            }

        lookup = await self.journal.record(
            "identity.resolved", f"settle/{key}", {"operator": settled.by}, look_up_operator
        )
        person = Approver.model_validate(lookup["operator"]) if lookup["operator"] else None
        statement = settlement_statement(self.scope.run.tenant_id, sent, settled)
        refused = settlement_fault(
            person,
            barred_settlers(self.scope.identity.principals),
            statement,
            settled.assertion,
            unsafe_local=lookup["unsafe_local"],
        )
        return str(refused) if refused else None
