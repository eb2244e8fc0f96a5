"""Defines `RunAccount`, the sum of the entries of one run, kept entry by entry as they are appended.

It is the same fold live, in a replay and for a stored run (`kinds`), so all readers of a run use one account: the
budget guard, the guards of calls, the rule of every end, the DecisionRecord and views. An effect of unknown outcome
counts as an effect that can have happened. Time in which a run waits is not counted: for a person, for the agent of its
session, for a driver, or for its turn (`waited_us` of an answer).
Source: Reference Architecture, "The three ledgers"; API Contracts, "run_budget"; docs/design/journal.md, "The account".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from hashlib import sha256
from operator import attrgetter
from typing import Any

from contextos.contracts.journal import LEDGERS, Logged
from contextos.contracts.model import UNITS_PER_CENT, final_fields


@final_fields
class Usage:
    """The resources that a run has used: tokens, calls, cost in 1/10,000 US cent, and wall clock time without waiting,
    in microseconds. `tokens` are the tokens of the compiled prompts, and `model_tokens` the tokens that models billed
    in `model_calls` calls.
    """

    tokens: int
    tool_calls: int
    cost_units: int
    wall_clock_us: int
    model_tokens: int = 0
    model_calls: int = 0

    @property
    def cost_cents(self) -> float | int:
        """Return the cost in US cents, with at most 4 decimals."""
        return cents(self.cost_units)


@dataclass(slots=True)
class RoutedCall:
    """One route, and the state of its call so far. `profile` is None if no profile was eligible.

    `outcome` is None until the call is answered, `not_taken` if its answer was not taken, and `no_route` without a
    profile. `cost_units` is the reserved cost until the answer states the cost; `is_unpriced` says that the answer
    stated none, so that the reserved cost counts. `tokens` has the tokens that the provider bills, by kind.
    """

    operation: str
    rules: str
    profile: str | None
    outcome: str | None = None
    cost_units: int = 0
    is_unpriced: bool = False
    tokens: Mapping[str, int] = field(default_factory=dict)


class LedgerSoFar:
    """One ledger of a run so far: the number of its entries and a digest over their hashes.

    Source: Reference Architecture, "The three ledgers".
    """

    def __init__(self) -> None:
        self._entries, self._hashed = 0, sha256(b"[")
        self._new: list[str] = []
        self.add = self._new.append
        """Adds the hash of the ledger's next entry."""

    def as_json(self) -> dict[str, Any]:
        """Return the ledger as a record names it. Its head is the content address of the list of hashes."""
        if hashes := self._new:
            self._hashed.update(b'%b"%b"' % (b"," if self._entries else b"", '","'.join(hashes).encode()))
            self._entries += len(hashes)
            hashes.clear()
        hashed = self._hashed.copy()
        hashed.update(b"]")
        return {"entries": self._entries, "head": f"sha256:{hashed.hexdigest()}"}


class RunAccount:
    """The sum of the entries of one run so far. Only `fold_entry` changes it; nothing else may change its values.

    `effects` has the effects of the run on other systems by call, in the order of the calls; the last entry about a
    call counts. `decisions` has the policy decisions in order, `controls` the values that they raised by name, and
    `matched_rules` the rules that matched in any of them. `instructing` names the sources whose text addresses an
    agent: `tool:<id>` or `attachment`, each once, in order. `routes` has the routes to models by the key of their
    entries, in order.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.ledgers = {name: LedgerSoFar() for name in LEDGERS}
        self.began_us = self.now_us = self.waited_us = 0
        self.tokens = self.tool_calls = 0
        self.cost_units: dict[str, int] = {}
        self.routes: dict[str, RoutedCall] = {}
        self.effects: dict[str, dict[str, Any]] = {}
        self.evidence: dict[str, Sequence[str]] = {}
        self.decisions: list[dict[str, Any]] = []
        self.controls: dict[str, set[str]] = {}
        self.matched_rules: dict[str, None] = {}
        self.instructing: dict[str, None] = {}
        self.by_kind: defaultdict[str, list[Logged]] = defaultdict(list)

    def of(self, *kinds: str) -> Sequence[Logged]:
        """Return the entries of these kinds, in order."""
        if len(kinds) == 1:
            return self.by_kind.get(kinds[0], ())
        return sorted((entry for kind in kinds for entry in self.by_kind.get(kind, ())), key=attrgetter("seq"))

    def last(self, kind: str) -> Logged | None:
        """Return the last entry of a kind, or None."""
        entries = self.by_kind.get(kind)
        return entries[-1] if entries else None

    def used(self) -> Usage:
        """Return what the run has used up to its last entry. A call counts with its reserved cost until its result
        states the actual cost.
        """
        wall_us = self.now_us - self.began_us - self.waited_us
        model_tokens = sum(sum(route.tokens.values()) for route in self.routes.values())
        units = sum(self.cost_units.values())
        return Usage(self.tokens, self.tool_calls, units, wall_us, model_tokens, self.model_calls)

    @property
    def model_calls(self) -> int:
        """Return how many calls of models were answered, or are known to be lost."""
        return sum(route.profile is not None and route.outcome is not None for route in self.routes.values())

    def ledger_heads(self) -> dict[str, dict[str, Any]]:
        """Return the three ledgers as a record names them."""
        return {name: ledger.as_json() for name, ledger in self.ledgers.items()}

    def raised(self, name: str) -> list[str]:
        """Return the values that the policy decisions of the run raised under this name, sorted."""
        return sorted(self.controls.get(name, ()))

    def evidence_refs(self) -> list[str]:
        """Return the references of the evidence in the order of its use, each once. Answers of tools are in the order
        in which their calls were dispatched. Memories in compiled contexts, attachments and artifacts are included.
        """
        return list(dict.fromkeys(ref for refs in self.evidence.values() for ref in refs))

    def void_answers(self) -> dict[int, str]:
        """Return the reason for each answer to an approval that the run found void, by the number of its entry."""
        has_void = "approval.voided" in self.by_kind
        return void_answers(self.of("approval.asked", "approval.answered", "approval.voided")) if has_void else {}

    def undone_call(self, tools: Set[str]) -> tuple[str, str] | None:
        """Return (tool, reason) of the last call of one of `tools` that the agent of a session asked for and that was
        not done; None if there is no such call. A later call of the same tool that was done makes up for it.
        """
        requests = {entry.key: entry.body["tool"] for entry in self.of("call.asked") if entry.body["tool"] in tools}
        undone: dict[str, str] = {}
        for entry in self.of("call.answered"):
            if entry.key not in requests:
                continue
            undone.pop(requests[entry.key], None)
            if entry.body["status"] != "done" and entry.body["step"] not in self.effects:
                reason = next((failure["detail"] for failure in entry.body["failures"]), entry.body["status"])
                undone[requests[entry.key]] = reason
        return next(reversed(undone.items()), None)


def cost_units(of_cents: float | int) -> int:
    """Convert US cents to whole units of 1/10,000 cent."""
    return round(of_cents * UNITS_PER_CENT)


def cents(units: int) -> float | int:
    """Convert units of 1/10,000 cent to US cents, with at most 4 decimals."""
    whole, remainder = divmod(units, UNITS_PER_CENT)
    return whole if remainder == 0 else units / UNITS_PER_CENT


def answered_call(account: RunAccount, entry: Logged) -> None:
    """Note the effect of a call, as its answer or its refusal states it."""
    call, effects, envelope = _call_key(entry), account.effects, entry.body["envelope"]
    made_by = envelope["metadata"].get("made_by")
    happened = made_by is not None or bool(entry.body.get("happened"))
    if not happened and entry.body.get("outcome") != "unknown":
        if entry.kind == "tool.returned":
            effects.pop(call, None)
        return
    if made_by and any(effect["tool_call_id"] == made_by["tool_call_id"] for effect in effects.values()):
        return  # the run itself did it, before it was reopened
    effects[call] = {
        "step_id": call.partition("/")[2],
        "capability_id": envelope["capability_id"],
        "tool_call_id": made_by["tool_call_id"] if made_by else envelope["tool_call_id"],
        "state": "happened" if happened else "unknown",
        "made_by": made_by["run_id"] if made_by else account.run_id,
        "mutations": list(envelope.get("mutations", ())),
    }


def settled_call(account: RunAccount, entry: Logged) -> None:
    """Note the finding of an operator about a call of unknown outcome."""
    call, effects = _call_key(entry), account.effects
    if call not in effects:
        return
    if entry.body["happened"]:
        effects[call] = effects[call] | {"state": "happened", "mutations": list(entry.body["mutations"])}
    else:
        del effects[call]


def _call_key(entry: Logged) -> str:
    """Return the call that an entry is about, as `<plan revision>/<step id>`."""
    return "/".join(entry.key.split("/", 2)[:2])


def void_answers(log: Iterable[Logged]) -> dict[int, str]:
    """Return the reason for each answer to an approval that its run found void, by the number of the answer's entry.

    Such an answer neither approves nor denies: a process that can append to the run can have made it up.
    """
    answer_numbers, reasons = dict[str, int](), dict[int, str]()
    for entry in log:
        if entry.kind == "approval.asked":
            answer_numbers.pop(entry.key, None)
        elif entry.kind == "approval.answered":
            answer_numbers[entry.key] = entry.seq
        elif entry.kind == "approval.voided" and entry.key in answer_numbers:
            reasons[answer_numbers[entry.key]] = entry.body["reason"] if entry.body else "its reason was erased"
    return reasons
