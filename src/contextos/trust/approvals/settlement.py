"""An operator's word on an effect whose outcome is unknown: who may give it, and every reason why it does not count.

It decides whether money may move again, so it is asserted as an approval is: a compact JWS by a key that the directory
knows, over exactly what is said of exactly this call. `unsafe_local` is a development stand-in without a key.
Source: shared/design/contracts.md, "Run" (`effect_uncertain`), "Approval modes".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.identity import Approver, Principals
from contextos.contracts.envelopes.tool import Settled
from contextos.contracts.ports.outside import Directory
from contextos.contracts.ports.seams import Journal
from contextos.contracts.scope import RunScope
from contextos.errors import ApprovalRefused, InvalidInput
from contextos.trust.approvals.assertion import OPERATOR_ROLE, grant_fault
from contextos.trust.identity.jws import sign_compact, verify_compact

SETTLEMENT_TYP: Final = "contextos-settlement+jws"


def settlement_statement(run_id: str, tool_call_id: str, settled: Settled) -> dict[str, Any]:
    """What the operator's key signs: nothing of it can be moved to another call, outcome or person."""
    return {
        "run_id": run_id,
        "tool_call_id": tool_call_id,
        "happened": settled.happened,
        "output_digest": content_address(settled.output),
        "mutations": list(settled.mutations),
        "evidence_ref": settled.evidence_ref,
        "by": settled.by,
    }


def sign_settlement(private_key: bytes, kid: str, said: Mapping[str, Any]) -> str:
    """The compact JWS by an operator's raw Ed25519 private key. Its type makes no approval of it, nor the reverse."""
    return sign_compact(private_key, kid, SETTLEMENT_TYP, said)


def barred_settlers(principals: Principals) -> frozenset[str]:
    """Who may not settle what a run did: its principal chain, the agent and the agent's owner."""
    user, agent = principals.user, principals.agent
    return frozenset({user.user_id, agent.agent_urn, agent.agent_id, agent.owner})


def operator_fault(person: Approver | None, by: str) -> ApprovalRefused | None:
    """Why `by` is no operator as the directory knows them, or None."""
    if person is None or person.approver_id != by:
        return ApprovalRefused("not_operator", f"`{by}` is not known in this tenant; ask somebody who is an operator")
    if OPERATOR_ROLE not in person.roles:
        return ApprovalRefused(
            "not_operator", f"`{by}` does not hold the role `{OPERATOR_ROLE}`; ask somebody who does"
        )
    return grant_fault(person, OPERATOR_ROLE)


def settlement_fault(
    person: Approver | None,
    barred: Collection[str],
    said: Mapping[str, Any],
    assertion: Mapping[str, Any],
    *,
    unsafe_local: bool,
) -> ApprovalRefused | None:
    """Why a settlement does not count, or None. Checked when it is given, and again before the run goes by it.

    `unsafe_local` says whether the deployment takes settlements without a key.
    """
    by = said["by"]
    if by in barred:
        return ApprovalRefused("self_settlement", f"`{by}` asked, acts or owns the agent; ask another operator")
    refused = operator_fault(person, by)
    if person is None or refused:
        return refused
    if assertion.get("kind") == "unsafe_local":
        detail = "this deployment takes no settlements without the operator's key"
        return None if unsafe_local else ApprovalRefused("unsafe_not_allowed", detail)
    if assertion.get("kind") != "jws" or not isinstance(assertion.get("token"), str):
        return ApprovalRefused("assertion_invalid", "the assertion is not supported; use `jws`")
    keys = {key.kid: bytes.fromhex(key.public_key) for key in person.keys}
    if verify_compact(assertion["token"], keys, SETTLEMENT_TYP) != said:
        return ApprovalRefused("assertion_invalid", "the assertion is not by the operator's key over this settlement")
    return None


@dataclass(frozen=True, slots=True)
class SettlementCheck:
    """The `settled_by` seam of one run: whoever reaches the store can append a settlement, so each is checked here."""

    journal: Journal
    scope: RunScope
    directory: Directory
    unsafe: tuple[str, ...]

    async def refused(self, key: str, tool_call_id: str, answer: Mapping[str, Any]) -> str | None:
        """Why the recorded answer does not count, or None. Asks who the operator is now; on a tape, who they were."""
        try:
            settled = parse(Settled, dict(answer))
        except InvalidInput as error:
            return f"it is no settlement: {error}"

        async def resolve() -> dict[str, Any]:
            person = await self.directory.approver(self.scope.run.tenant_id, settled.by)
            return {
                "operator": person.to_json() if person else None,
                "unsafe_local": "unsafe_local_approvals" in self.unsafe,
            }

        who = await self.journal.record("identity.resolved", f"settle/{key}", {"operator": settled.by}, resolve)
        person = Approver.model_validate(who["operator"]) if who["operator"] else None
        said = settlement_statement(self.journal.run_id, tool_call_id, settled)
        refused = settlement_fault(
            person, barred_settlers(self.scope.principals), said, settled.assertion, unsafe_local=who["unsafe_local"]
        )
        return str(refused) if refused else None
