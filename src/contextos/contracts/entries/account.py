"""`RunAccount`: what the entries of one run add up to, kept entry by entry as they are appended.

It is the same fold live, in a replay and for a stored run (`kinds`), so all who read a run read one account: the
budget guard, the guards of calls, the rule of every end, the DecisionRecord and views. An effect whose outcome nobody
knows counts as one that can have happened. Time in which a run waits is not counted: for a person, for the agent of its
session, for a driver, or for its turn (`waited_us` of an answer).
Source: Reference Architecture, "The three ledgers"; API Contracts, "run_budget"; docs/design/journal.md, "The account".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final, Protocol

from contextos.contracts.journal import LEDGERS, Logged
from contextos.contracts.model import UNITS_PER_CENT, final_fields

OF_RECORD: Final = ("policy.decided", "run.pinned", "run.scored")
"""The kinds that state parts of a DecisionRecord."""


@final_fields
class Usage:
    """What a run has used: tokens, calls, cost in 1/10,000 US cent, and wall clock time without waiting, in
    microseconds.
    """

    tokens: int
    tool_calls: int
    cost_units: int
    wall_clock_us: int

    @property
    def cost_cents(self) -> float | int:
        """Return the cost in US cents, with at most 4 decimals."""
        whole, rest = divmod(self.cost_units, UNITS_PER_CENT)
        return whole if rest == 0 else self.cost_units / UNITS_PER_CENT


class LedgerSoFar:
    """One ledger of a run so far: the number of its entries and a digest over their hashes.

    Source: Reference Architecture, "The three ledgers".
    """

    def __init__(self) -> None:
        self._entries, self._hashed = 0, sha256(b"[")
        self._new: list[str] = []

    def add(self, entry_hash: str) -> None:
        """Add the hash of its next entry."""
        self._new.append(entry_hash)

    def as_json(self) -> dict[str, Any]:
        """Return the ledger as a record names it. Its head is the content address of the list of hashes."""
        if new := self._new:
            self._hashed.update(b'%b"%b"' % (b"," if self._entries else b"", '","'.join(new).encode()))
            self._entries += len(new)
            new.clear()
        whole = self._hashed.copy()
        whole.update(b"]")
        return {"entries": self._entries, "head": f"sha256:{whole.hexdigest()}"}


class RunAccount:
    """What the entries of one run up to now add up to. Only `fold_entry` changes it, and nobody what it holds.

    `effects` has what the run did to other systems by call, in the order of the calls; the last word about a call
    counts. `decisions` has the policy decisions in order, `controls` what they raised by name, and `matched_rules` the
    rules that matched in any of them. `record` is the last DecisionRecord in full, None without one or where a part of
    it was erased; `erased` are the kinds of the entries without a body. `instructing` names the content that speaks to
    an agent: `tool:<id>` or `attachment`, each once, in order.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.ledgers = {name: LedgerSoFar() for name in LEDGERS}
        self.began_us = self.now_us = self.waited_us = 0
        self.tokens = self.tool_calls = 0
        self.cost_units: dict[str, int] = {}
        self.effects: dict[str, dict[str, Any]] = {}
        self.evidence: dict[str, Sequence[str]] = {}
        self.decisions: list[dict[str, Any]] = []
        self.controls: dict[str, set[str]] = {}
        self.matched_rules: dict[str, None] = {}
        self.instructing: dict[str, None] = {}
        self.by_kind: dict[str, list[Logged]] = {}
        self.record: dict[str, Any] | None = None
        self.erased: set[str] = set()

    def of(self, *kinds: str) -> Sequence[Logged]:
        """Return the entries of these kinds, in order."""
        if len(kinds) == 1:
            return self.by_kind.get(kinds[0], ())
        return sorted((one for kind in kinds for one in self.by_kind.get(kind, ())), key=attrgetter("seq"))

    def last(self, kind: str) -> Logged | None:
        """Return the last entry of a kind, or None."""
        found = self.by_kind.get(kind)
        return found[-1] if found else None

    def used(self) -> Usage:
        """Return what the run has used up to its last entry. A call counts with its reserved cost until its result
        states the actual cost.
        """
        wall_us = self.now_us - self.began_us - self.waited_us
        return Usage(self.tokens, self.tool_calls, sum(self.cost_units.values()), wall_us)

    def ledger_heads(self) -> dict[str, dict[str, Any]]:
        """Return the three ledgers as a record names them."""
        return {name: ledger.as_json() for name, ledger in self.ledgers.items()}

    def raised(self, name: str) -> list[str]:
        """Return what the policy decisions of the run raised under this name, in order of the alphabet."""
        return sorted(self.controls.get(name, ()))

    def evidence_refs(self) -> list[str]:
        """Return the references in the order of their use; that of an answer is the order in which the calls were
        dispatched. They include the memories in the compiled contexts, and the attachments and artifacts that the run
        got.
        """
        return list(dict.fromkeys(ref for refs in self.evidence.values() for ref in refs))

    def stated_record(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return of a DecisionRecord of the run as it is now what no entry before it states (`whole_record`)."""
        stated = dict(record)
        del stated["policy_decisions"]
        if record["lineage"]["pins"] == self._last_of("run.pinned", "pins"):
            stated["lineage"] = {name: value for name, value in record["lineage"].items() if name != "pins"}
        if stated.pop("scorecard", None) is not None:
            stated["scored"] = self.of("run.scored")[-1].key
        return stated

    def whole_record(self, stated: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the DecisionRecord of which an entry that follows now states the rest, or None where what the entries
        before it state of it was erased or is not there.
        """
        if not self.erased.isdisjoint(OF_RECORD):
            return None
        whole = {**stated, "policy_decisions": list(self.decisions)}
        whole["lineage"] = {"pins": self._last_of("run.pinned", "pins"), **stated["lineage"]}
        if (key := whole.pop("scored", None)) is not None:
            scored = self.last("run.scored")
            if scored is None or scored.key != key:
                return None
            whole["scorecard"] = scored.body
        return whole

    def _last_of(self, kind: str, name: str) -> Any:
        """A member of the last entry of a kind, `{}` without one."""
        last = self.last(kind)
        return last.body.get(name, {}) if last else {}

    def void_answers(self) -> dict[int, str]:
        """Return the answers to approvals that the run found void (`void_answers`)."""
        voided = "approval.voided" in self.by_kind
        return void_answers(self.of("approval.asked", "approval.answered", "approval.voided")) if voided else {}

    def undone_call(self, tools: Set[str]) -> tuple[str, str] | None:
        """Return the last call of one of `tools` that the agent of a session asked for and that was not done, if no
        later call of its tool was: the tool, and why.
        """
        asked = {one.key: one.body["tool"] for one in self.of("call.asked") if one.body["tool"] in tools}
        undone: dict[str, str] = {}
        for one in self.of("call.answered"):
            if one.key not in asked:
                continue
            undone.pop(asked[one.key], None)
            if one.body["status"] != "done" and one.body["step"] not in self.effects:
                why = next((failure["detail"] for failure in one.body["failures"]), one.body["status"])
                undone[asked[one.key]] = why
        return next(reversed(undone.items()), None)


def cost_units(cents: float | int) -> int:
    """Convert US cents to whole units of 1/10,000 cent."""
    return round(cents * UNITS_PER_CENT)


class Said(Protocol):
    """An entry with its parsed body, or with the answer if its kind is recorded; None if it was erased."""

    @property
    def seq(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def body(self) -> Any: ...


def void_answers(log: Iterable[Said]) -> dict[int, str]:
    """Return by the number of its entry each answer to an approval that its run found void, with the reason.

    Such an answer is nobody's approval and nobody's denial: a process that can append to the run can have made it up.
    """
    answered, void = dict[str, int](), dict[int, str]()
    for entry in log:
        if entry.kind == "approval.asked":
            answered.pop(entry.key, None)
        elif entry.kind == "approval.answered":
            answered[entry.key] = entry.seq
        elif entry.kind == "approval.voided" and entry.key in answered:
            void[answered[entry.key]] = entry.body["reason"] if entry.body else "its reason was erased"
    return void
