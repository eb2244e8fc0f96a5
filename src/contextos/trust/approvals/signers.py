"""Verify who signed what in a run: every answer of a person, against the lines of `control` about that person.

A run states the keys of the people that it looked up. A key counts here only if `control` states it for that time,
under the seal of acts. So the keys that sign heads and claims are not enough to forge a run that somebody approved.
Source: docs/adr/0062-who-signed-is-proved-by-control.md.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.contracts.acts import RecordedAct
from contextos.contracts.encoding.codec import parse
from contextos.contracts.entries.reading import read_body
from contextos.contracts.entries.recorded import AnsweredSlot
from contextos.contracts.envelopes.identity import Answered, Approver, Principals, Settled
from contextos.contracts.envelopes.tool import StatedCall
from contextos.contracts.journal import CONTROL, DIRECTORY_USED, Entry
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.contracts.statements.settlements import settlement_statement
from contextos.errors import ChainBroken, Integrity, InvalidInput
from contextos.trust.approvals.acts import act_key, slot_answer_act
from contextos.trust.approvals.assertion import approval_fault
from contextos.trust.approvals.cancel_requests import requests_in
from contextos.trust.approvals.people import ListedPeople
from contextos.trust.approvals.settlement import barred_settlers, settlement_fault

Persons = Mapping[str, Collection[str]]
"""The keys of people that somebody other than the operator gave: public keys in hex, by the id of the person."""

NO_PERSONS: Final[Persons] = {}


async def require_signers(store: Store, tape: Sequence[Entry], keys: Keys) -> None:
    """Check every person's answer in the stored run `tape` against `control`. Raises as `verify_signers`."""
    keys_of_people = signers_of(tape)
    if keys_of_people or any(entry.kind == "run.cancel_requested" for entry in tape):
        verify_signers(tape, await store.lines(CONTROL, tape[0].run, *keys_of_people), keys)


def signers_of(tape: Sequence[Entry]) -> frozenset[str]:
    """Return the keys of the lines of `control` that prove who answered in a run: the ids of the people who answered or
    were looked up for an answer, and `DIRECTORY_USED` if the run names a version of the directory.
    """
    return frozenset(name for entry in tape for name in _signer_keys(entry))


def _signer_keys(entry: Entry) -> Iterator[str]:
    if entry.kind not in ("approval.answered", "effect.settled", "slot.answered", "identity.resolved"):
        return
    answer = _recorded_answer(entry)
    if entry.kind == "identity.resolved":
        if (answer.get("principals") or {}).get("directory_version") is not None:
            yield DIRECTORY_USED
        listed_approvers = answer.get("approver") or answer.get("operator")
        name = listed_approvers.get("approver_id") if isinstance(listed_approvers, dict) else None
    elif entry.kind == "slot.answered":
        name = entry.by
    else:
        name = answer.get("approver") or answer.get("by")
    if isinstance(name, str):
        yield name


def _recorded_answer(entry: Entry) -> dict[str, Any]:
    """Return the recorded answer in an entry; empty if it was erased or is not an object."""
    try:
        answer = read_body(entry)
    except (Integrity, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}


def verify_signers(tape: Sequence[Entry], lines: Sequence[Entry], keys: Keys, *, persons: Persons = NO_PERSONS) -> None:
    """Check every person's answer in a run: an approval, a denial, a settlement, a selection for a slot and a request
    to cancel. It must be proved, unless the run says that it did not count.

    `lines` are the entries of `control` about these people and about the run, in order. A person in `persons`
    must have signed with one of the keys given there. Erased entries are not checked.

    Raises:
        ChainBroken: an answer is not proved, or the run looked somebody up whom `control` does not state; names it.
    """
    _SignerCheck(tape, ListedPeople(keys, lines), requests_in(lines, keys), persons).run()


def actor_fault(recorded: RecordedAct, entry: Entry, people: ListedPeople, persons: Persons = NO_PERSONS) -> str | None:
    """Return why the lines of `control` before an act do not prove its actor, or None. `people` has no later line."""
    if recorded.assertion.token is None:
        return "nobody signed it" if recorded.act.actor in persons else None
    approvers = people.in_force(recorded.act.actor, entry.at_us, entry.at_us)
    if any(
        (recorded.role is None or recorded.role in approver.roles)
        and act_key(_with_given_keys(approver, persons), recorded.act, recorded.assertion)
        for approver in approvers
    ):
        return None
    return f"`{CONTROL}` does not state that `{recorded.act.actor}` had this key and role"


def _with_given_keys(person: Approver, persons: Persons) -> Approver:
    """Return the person with only the keys that `persons` gives for them; unchanged if `persons` does not name them."""
    given_keys = persons.get(person.approver_id)
    if given_keys is None:
        return person
    keys = tuple(key for key in person.keys if key.public_key in given_keys)
    passkeys = tuple(passkey for passkey in person.passkeys if _to_hex(passkey.public_key) in given_keys)
    return person.model_copy(update={"keys": keys, "passkeys": passkeys, "logins": ()})


def _to_hex(base64url: str) -> str:
    return base64.urlsafe_b64decode(base64url + "=" * (-len(base64url) % 4)).hex()


@dataclass(slots=True)
class _SignerCheck:
    """One pass over a run. `faults` has, by kind and key, the faults of answers that the run can still call void."""

    tape: Sequence[Entry]
    people: ListedPeople
    cancels: Collection[tuple[str, Any]]
    persons: Persons
    faults: dict[tuple[str, str], ChainBroken] = field(default_factory=dict)
    questions: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    redeemed: set[str] = field(default_factory=set)
    unsigned: set[str] = field(default_factory=set)
    erased: set[tuple[str, str]] = field(default_factory=set)
    sent: dict[str, StatedCall] = field(default_factory=dict)
    principals: Principals | None = None

    def run(self) -> None:
        before_us = self.tape[0].at_us
        for entry in self.tape:
            check = _CHECKS.get(entry.kind)
            if entry.body is None:
                self.erased.add((entry.kind, entry.key))
            elif check is not None:
                try:
                    fault = check(self, entry, before_us)
                except ChainBroken:
                    raise
                except (InvalidInput, Integrity, LookupError, TypeError, ValueError, AttributeError):
                    fault = "is malformed"
                if fault:
                    self.record_fault(entry, fault)
            before_us = entry.at_us
        for error in sorted(self.faults.values(), key=lambda fault: fault.seq):
            raise error

    def record_fault(self, entry: Entry, fault: str) -> None:
        self.faults[entry.kind, entry.key] = ChainBroken(entry.run, entry.seq, fault)

    def approvers_in_force(self, person_id: str, since_us: int, entry: Entry) -> list[Approver]:
        return self.people.in_force(person_id, since_us, entry.at_us)

    def note_question(self, entry: Entry, _: int) -> None:
        self.questions[entry.key] = read_body(entry)
        self.answers.pop(entry.key, None)
        self.redeemed.discard(entry.key)

    def check_answer(self, entry: Entry, before_us: int) -> str | None:
        answer = parse(Answered, read_body(entry)).to_json()
        self.answers[entry.key] = answer
        question = self.questions.get(entry.key)
        if question is None:
            return None  # it was erased
        if entry.by != answer["approver"] or answer["binding_digest"] != question["binding_digest"]:
            return "answers another question, or for somebody else"
        approvers = self.approvers_in_force(answer["approver"], before_us, entry)
        return self._answer_fault(question, answer, approvers)

    def _answer_fault(
        self, question: Mapping[str, Any], answer: Mapping[str, Any], approvers: Sequence[Approver]
    ) -> str | None:
        name, kind = answer["approver"], answer["assertion"]["kind"]
        if kind == "unsafe_local" and name in self.persons:
            return f"is an answer of `{name}` that nobody signed"
        if any(
            approval_fault(_with_given_keys(approver, self.persons), question, answer) is None for approver in approvers
        ):
            return None
        return f"is an answer of `{name}` that no key of theirs proves which `{CONTROL}` states for that time"

    def check_lookup(self, entry: Entry, before_us: int) -> str | None:
        answer = read_body(entry)
        if answer.get("principals") and not entry.key:
            self.principals = Principals.model_validate(answer["principals"])
        version = (answer.get("principals") or {}).get("directory_version")
        if version is not None and version not in self.people.versions(before_us, entry.at_us):
            detail = f"rests on version {version} of the directory, and `{CONTROL}` states another one for that time"
            raise ChainBroken(entry.run, entry.seq, detail)
        about, _, key = entry.key.partition("/")
        listing = answer.get("operator" if about == "settle" else "approver")
        person = Approver.model_validate(listing) if listing else None
        if person and person not in self.approvers_in_force(person.approver_id, before_us, entry):
            raise ChainBroken(
                entry.run, entry.seq, f"states `{person.approver_id}` as no line of `{CONTROL}` does for that time"
            )
        if about == "settle" and key in self.unsigned and not answer["unsafe_local"]:
            return "is about a settlement without a key, and none counts here"
        if about == "redeem" and key in self.answers and key in self.questions:
            approval = self.answers[key]
            self.redeemed.add(key)
            if approval["assertion"]["kind"] == "unsafe_local" and not answer["unsafe_local"]:
                return "is an answer without a key, and none counts here"
            fault = self._answer_fault(self.questions[key], approval, [person] if person else [])
            return fault and f"rests on an answer that {fault}"
        return None

    def drop_void_answer(self, entry: Entry, _: int) -> None:
        self.faults.pop(("approval.answered", entry.key), None)
        self.faults.pop(("identity.resolved", f"redeem/{entry.key}"), None)
        self.answers.pop(entry.key, None)

    def check_expired(self, entry: Entry, _: int) -> str | None:
        question = self.questions.get(entry.key)
        if question is not None and entry.at_us < question["deadline_us"]:
            return "ends a question before its deadline"
        return None

    def check_dispatch(self, entry: Entry, _: int) -> str | None:
        body, key = read_body(entry), entry.key.rsplit("/", 1)[0]
        self.sent[key] = StatedCall.model_validate(body["envelope"])
        question = self.questions.get(key)
        if body.get("approval_id") is not None and question is not None:
            answer = self.answers.get(key)
            erased = answer is None and ("approval.answered", key) in self.erased
            is_approved = erased or (answer is not None and answer["verdict"] == "approved")
            if body["approval_id"] != question["approval_id"] or not is_approved:
                return "sends a call that nobody approved"
            if key not in self.redeemed and not erased and ("identity.resolved", f"redeem/{key}") not in self.erased:
                return "sends a call without looking up who approved it"
        return None

    def check_settled(self, entry: Entry, before_us: int) -> str | None:
        settled, sent = parse(Settled, read_body(entry)), self.sent.get(entry.key)
        if settled.assertion is not None and settled.assertion.token is None:
            self.unsigned.add(entry.key)
        else:
            self.unsigned.discard(entry.key)
        if sent is None or self.principals is None:
            return None  # it was erased
        if settled.by in self.persons and (settled.assertion is None or settled.assertion.token is None):
            return f"is a settlement of `{settled.by}` that nobody signed"
        statement, barred = settlement_statement(entry.tenant, sent, settled), barred_settlers(self.principals)
        for approver in self.approvers_in_force(settled.by, before_us, entry):
            restricted = _with_given_keys(approver, self.persons)
            if settlement_fault(restricted, barred, statement, settled.assertion, unsafe_local=True) is None:
                return None
        return f"is a settlement of `{settled.by}` that no key of theirs proves which `{CONTROL}` states for that time"

    def check_slot_answer(self, entry: Entry, before_us: int) -> str | None:
        answer = parse(AnsweredSlot, read_body(entry))
        act = answer.act
        if act != slot_answer_act(entry.tenant, entry.run, entry.by, answer.selection, entry.seq):
            return "answers another question, or for somebody else"
        if answer.assertion.token is None:
            return f"is a selection of `{act.actor}` that nobody signed" if act.actor in self.persons else None
        approvers = self.approvers_in_force(act.actor, before_us, entry)
        if any(act_key(_with_given_keys(approver, self.persons), act, answer.assertion) for approver in approvers):
            return None
        return f"is a selection of `{act.actor}` that no key of theirs proves which `{CONTROL}` states for that time"

    def drop_refused_selection(self, entry: Entry, _: int) -> None:
        if "refused" in read_body(entry):
            self.faults.pop(("slot.answered", entry.key), None)

    def check_cancel(self, entry: Entry, _: int) -> str | None:
        request = read_body(entry)
        if any(
            (run_id, cancel.by, cancel.reason) == (entry.run, request["by"], request["reason"])
            for run_id, cancel in self.cancels
        ):
            return None
        return "is a request to cancel the run that no sealed act states"

    def drop_unproved_cancel(self, _entry: Entry, _: int) -> None:
        self.faults = {
            kind_and_key: error
            for kind_and_key, error in self.faults.items()
            if kind_and_key[0] != "run.cancel_requested"
        }


_CHECKS: Final[Mapping[str, Callable[[_SignerCheck, Entry, int], str | None]]] = {
    "approval.asked": _SignerCheck.note_question,
    "approval.answered": _SignerCheck.check_answer,
    "identity.resolved": _SignerCheck.check_lookup,
    "approval.voided": _SignerCheck.drop_void_answer,
    "approval.expired": _SignerCheck.check_expired,
    "tool.dispatching": _SignerCheck.check_dispatch,
    "effect.settled": _SignerCheck.check_settled,
    "slot.answered": _SignerCheck.check_slot_answer,
    "slot.selected": _SignerCheck.drop_refused_selection,
    "run.cancel_requested": _SignerCheck.check_cancel,
    "run.cancel_unproved": _SignerCheck.drop_unproved_cancel,
}
