"""Operator acts: which role each kind of act needs, every reason to refuse an act, and the seal of a recorded one.

An act is checked like a settlement: a key that the directory lists for the actor must have signed exactly this act in
this tenant, and the directory must say that another person granted the role. `unsafe_local` is an act whose actor is
only named, for development. The runtime then seals the entry, so nobody who can only write the store can add an act.
Source: docs/adr/0021-an-operator-signs-what-is-in-force.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import orjson

from contextos.contracts.acts import ActSeal, ListedPerson, OperatorAct, RecordedAct, UsedDirectory
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical, same_json
from contextos.contracts.entries.linked import ASKED_BYTES, KEPT_BYTES, RecentlyUsed
from contextos.contracts.envelopes.identity import Approver, ApproverKey, SignerAssertion
from contextos.contracts.envelopes.slots import SelectionAct
from contextos.contracts.journal import CONTROL, Draft, Entry, body_digest, header_hash
from contextos.contracts.ports.outside import Keys
from contextos.errors import ApprovalRefused, ChainBroken, InvalidInput
from contextos.trust.approvals.assertion import OPERATOR_ROLE, grant_fault
from contextos.trust.identity.jws import sign_compact, verify_compact

SealedT = TypeVar("SealedT", RecordedAct, ListedPerson, UsedDirectory)

_PARSED: Final[RecentlyUsed[tuple[Any, bytes, str | None]]] = RecentlyUsed(KEPT_BYTES)
"""The results of `_read` by contract and exact entry. The seal is verified with the trusted keys each time."""
_is_signature: Final = re.compile(r"[0-9a-f]{128}").fullmatch
_MEMORY_PER_BYTE: Final = 8
"""The bytes of memory that a parsed body takes, about, for each byte of its text."""

ACT_TYP: Final = "contextos-act+jws"
POLICY_ADMIN_ROLE: Final = "policy_admin"
PUBLISHER_ROLE: Final = "publisher"
AUDITOR_ROLE: Final = "auditor"
MEMORY_REVIEWER_ROLE: Final = "memory_reviewer"
KNOWLEDGE_WRITER_ROLE: Final = "knowledge_writer"

ACT_ROLES: Final[Mapping[str, str]] = {
    "artifact.published": PUBLISHER_ROLE,
    "artifact.withdrawn": POLICY_ADMIN_ROLE,
    "policies.activated": POLICY_ADMIN_ROLE,
    "packs.pinned": POLICY_ADMIN_ROLE,
    "packs.withdrawn": POLICY_ADMIN_ROLE,
    "graph.withdrawn": KNOWLEDGE_WRITER_ROLE,
    "graph.written": KNOWLEDGE_WRITER_ROLE,
    "memory.reviewed": MEMORY_REVIEWER_ROLE,
    "runs.exported": AUDITOR_ROLE,
    "run.cancelled": OPERATOR_ROLE,
    "approval.reasked": OPERATOR_ROLE,
    "run.retried": OPERATOR_ROLE,
    "capability.released": OPERATOR_ROLE,
    "model.checked": OPERATOR_ROLE,
    "run.reopened": OPERATOR_ROLE,
    "decision.resolved": OPERATOR_ROLE,
    "decision.closed": OPERATOR_ROLE,
    "entry.erased": OPERATOR_ROLE,
    "store.restored": OPERATOR_ROLE,
    "key.rotated": OPERATOR_ROLE,
    "slots.extension_registered": PUBLISHER_ROLE,
    "slots.artifact_added": PUBLISHER_ROLE,
    "slots.artifact_revised": PUBLISHER_ROLE,
    "slots.artifact_classified": PUBLISHER_ROLE,
    "slots.assertion_archived": PUBLISHER_ROLE,
    "slots.artifact_deleted": PUBLISHER_ROLE,
}
"""The role that the directory must name for the actor, by kind of act. No role allows an act of another kind."""

SLOT_ANSWER: Final = "slot.answered"
"""The act with which the run's user selects for a context slot. It is recorded in the run, not in `control`."""

OWN_RUN_ACTS: Final = frozenset({"run.cancelled", "approval.reasked", SLOT_ANSWER})
"""The acts that need no role: the run's user may do them, and cancelling and asking again also the agent's owner."""

UNSAFE_LOCAL_OPERATORS: Final = "unsafe_local_operators"
"""The setting under which an actor is named and not proved."""


def sign_act(private_key: bytes, kid: str, statement: Mapping[str, Any]) -> str:
    """Sign an act with the actor's raw Ed25519 private key; return the compact JWS.

    Its `typ` differs from those of an approval and of a settlement, so none can be used as another.
    """
    return sign_compact(private_key, kid, ACT_TYP, statement)


def act_fault(
    person: Approver | None, act: OperatorAct, role: str | None, assertion: SignerAssertion, *, unsafe_local: bool
) -> ApprovalRefused | None:
    """Return why an act is refused, or None.

    `person` is the directory's entry for the actor. `role` is the role that the act needs; None where the actor needs
    none, because the run is theirs. `unsafe_local`: the deployment accepts actors that are only named.
    """
    if role is not None:
        if person is None or person.approver_id != act.actor:
            remedy = f"ask somebody with the role `{role}`"
            return ApprovalRefused("unknown_actor", f"the directory has no `{act.actor}` in this tenant; {remedy}")
        if role not in person.roles:
            return ApprovalRefused(
                "not_allowed", f"`{act.actor}` does not hold the role `{role}`; ask somebody who does"
            )
        if fault := grant_fault(person, role):
            return fault
    if assertion.token is None and not unsafe_local:
        detail = f"`{act.actor}` is only named; sign with their key, or allow `{UNSAFE_LOCAL_OPERATORS}`"
        return ApprovalRefused("unsafe_not_allowed", detail)
    if assertion.token is None or act_key(person, act, assertion):
        return None
    return ApprovalRefused("assertion_invalid", f"no key of `{act.actor}` signed this act; sign it with their key")


def slot_answer_arguments(run_id: str, selection: SelectionAct) -> dict[str, Any]:
    """Return the arguments of the act with which a run's user answers its slot. They fit this selection only."""
    return {"run_id": run_id, "selection": selection.to_json()}


def slot_answer_act(tenant_id: str, run_id: str, actor: str, selection: SelectionAct, seq: int) -> OperatorAct:
    """Return the act that the run's user signs for the selection that becomes the entry `seq` of the run."""
    arguments = slot_answer_arguments(run_id, selection)
    return OperatorAct(tenant_id=tenant_id, kind=SLOT_ANSWER, actor=actor, arguments=arguments, expected=seq - 1)


def slot_answer_fault(
    person: Approver | None, act: OperatorAct, assertion: SignerAssertion, expected: OperatorAct, *, unsafe_local: bool
) -> str | None:
    """Return why a run does not take the recorded answer to its slot, or None.

    `person` is the directory's entry for the run's user now. `expected` is the act that the run asked for. Any process
    with store access can append an answer, so only what the user's key signed is believed.
    """
    if not same_json(act.to_json(), expected.to_json()):
        return "it answers another question, or somebody else answered"
    fault = act_fault(person, act, None, assertion, unsafe_local=unsafe_local)
    return str(fault) if fault else None


def act_key(person: Approver | None, act: OperatorAct, assertion: SignerAssertion) -> ApproverKey | None:
    """Return the key of `person` that signed this act, or None."""
    if person is None or person.approver_id != act.actor:
        return None
    return next(
        (key for key in person.keys if assertion.token is not None and _is_signed_by(key, act, assertion.token)), None
    )


def sealed_act(tenant_id: str, draft: Draft, unsealed: Mapping[str, Any], keys: Keys) -> Draft:
    """Return `draft` with a body: the fields `unsealed` of a `RecordedAct`, `ListedPerson` or `UsedDirectory`, and the
    runtime's seal.

    The salt of `draft` is random, so every seal differs.
    """
    kid, signature = keys.sign("act", _seal_payload(tenant_id, draft, unsealed))
    return draft._replace(body=canonical({**unsealed, "seal": {"kid": kid, "signature": signature.hex()}}))


def read_act(entry: Entry, keys: Keys) -> RecordedAct:
    """Return the act in an entry of `control`, which the runtime sealed. The directory is not asked: people change.

    Raises:
        ChainBroken: the entry is not an act, or not the entry that the runtime wrote there.
    """
    return read_sealed(entry, RecordedAct, keys)


def counted_act(line: Entry, keys: Keys) -> OperatorAct | None:
    """Return the act in an entry of `control`, or None if it does not hold an act that the runtime sealed."""
    try:
        return read_act(line, keys).act
    except ChainBroken:
        return None


def read_sealed(entry: Entry, contract: type[SealedT], keys: Keys) -> SealedT:
    """Return the body of an entry of `control`, which the runtime sealed there.

    Raises:
        ChainBroken: the entry is not the entry that the runtime wrote there, or does not fit `contract`.
    """
    key = (contract, entry)
    sealed, payload, fault = _PARSED.get(key) or _PARSED.keep(key, *_parse_sealed(entry, contract))
    if fault := _seal_fault(sealed.seal, payload, entry.at_us, keys) or fault:
        raise ChainBroken(CONTROL, entry.seq, f"is a `{entry.kind}` that does not count: {fault}")
    body: SealedT = sealed
    return body


def _parse_sealed(entry: Entry, contract: type[SealedT]) -> tuple[tuple[SealedT, bytes, str | None], int]:
    """Return (body, bytes that the seal covers, why it counts under no seal or None), and the size in memory."""
    if entry.body is None or entry.salt is None or header_hash(entry) != entry.hash:
        raise ChainBroken(CONTROL, entry.seq, "is not the entry that was written there")
    if body_digest(entry.salt, entry.body) != entry.body_digest:
        raise ChainBroken(CONTROL, entry.seq, "has a body that its digest does not cover")
    try:
        body = orjson.loads(entry.body)
        sealed = parse(contract, body)
    except (InvalidInput, orjson.JSONDecodeError) as error:
        raise ChainBroken(CONTROL, entry.seq, f"is not a `{entry.kind}` as the runtime writes it: {error}") from None
    draft = Draft(entry.kind, entry.key, entry.at_us, entry.by, entry.body, entry.salt)
    payload = _seal_payload(entry.tenant, draft, {name: value for name, value in body.items() if name != "seal"})
    fault = _act_fault(entry, sealed) if isinstance(sealed, RecordedAct) else None
    return (sealed, payload, fault), ASKED_BYTES + _MEMORY_PER_BYTE * len(entry.body)


def _act_fault(entry: Entry, recorded: RecordedAct) -> str | None:
    act, assertion = recorded.act, recorded.assertion
    if (act.tenant_id, act.kind, act.actor) != (entry.tenant, entry.kind, entry.by):
        return "it holds the act of somebody else, of another kind or of another tenant"
    if recorded.role != ACT_ROLES.get(entry.kind, "") and not (entry.kind in OWN_RUN_ACTS and recorded.role is None):
        return "its actor had no role for it"
    if assertion.token is not None and (recorded.key is None or not _is_signed_by(recorded.key, act, assertion.token)):
        return "its actor did not sign this act"
    return None


def _seal_fault(seal: ActSeal, payload: bytes, at_us: int, keys: Keys) -> str | None:
    if not _is_signature(seal.signature):
        return "its seal is not a signature"
    if not keys.verify("act", seal.kid, payload, bytes.fromhex(seal.signature), at_us=at_us):
        return "the runtime did not seal it"
    return None


def _seal_payload(tenant_id: str, draft: Draft, unsealed: Mapping[str, Any]) -> bytes:
    """Return the bytes that the seal covers: the place of the entry and all of its body but the seal."""
    place = {"tenant": tenant_id, "kind": draft.kind, "key": draft.key, "at_us": draft.at_us, "by": draft.by}
    return canonical({**place, "salt": draft.salt.hex(), "body": dict(unsealed)})


def _is_signed_by(key: ApproverKey, act: OperatorAct, token: str) -> bool:
    statement = verify_compact(token, {key.kid: bytes.fromhex(key.public_key)}, ACT_TYP)
    return statement is not None and canonical(statement) == canonical(act.to_json())
