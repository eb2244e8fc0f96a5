"""Why a run did what it did, as plain sentences, each with the journal entry that it rests on.

`explain` is a pure function of the entries and of the rules that the run is pinned to. It says nothing that no entry
says; what was erased is left out. Text from tools and users is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from contextos.contracts.encoding.display_escape import an, displayed, displayed_json
from contextos.contracts.entries.account import void_answers
from contextos.contracts.entries.reading import read_body
from contextos.contracts.facts import nearest_name
from contextos.errors import InvalidInput, Problem
from contextos.queries.timeline import NO_RATIONALES, ReadEntry
from contextos.queries.why.fact_values import Produced, fact_value, facts_read

if TYPE_CHECKING:
    from contextos.contracts.envelopes.policy import Rule
    from contextos.contracts.journal import Entry

Topic = Literal["shown", "policy", "gate", "fact", "authority", "call"]
_Sentences = Iterator[tuple[Topic, str | None, str]]


@dataclass(frozen=True, slots=True)
class PinnedRules:
    """What a run is pinned to and its journal only names: the rules by id, and by tool the names of the evidence that
    it produces.
    """

    by_id: Mapping[str, Rule]
    produced: Produced


NO_RULES: Final = PinnedRules({}, {})


@dataclass(frozen=True, slots=True)
class RunReason:
    """One sentence about a run. `tool` is the tool that it is about, or None for the whole run.

    It rests on the entry of the run with the number `entry` and the kind `kind`. Topics: `shown` (why a tool was shown
    or hidden), `policy` (what policy said of it), `gate` (why a person was asked), `fact` (which facts decided),
    `authority` (who acted, and who authorised) and `call` (what became of a call).
    """

    topic: Topic
    tool: str | None
    text: str
    entry: int
    kind: str


def explain(entries: Sequence[Entry], rules: PinnedRules = NO_RULES, tool: str | None = None) -> tuple[RunReason, ...]:
    """Return the reasons of a run in the order in which they arose; with `tool`, only those about it and about the run.

    Raises:
        InvalidInput: no entry of the run is about this tool (`unknown_tool`).
    """
    log = [ReadEntry(one.seq, one.kind, one.key, one.at_us, one.by, read_body(one), NO_RATIONALES) for one in entries]
    void = set(void_answers(log))
    # The answer and the look-up behind it say who it was that approved, and nobody did.
    names = {("identity.resolved", f"redeem/{log[seq - 1].key}") for seq in void}
    void |= {one.seq for one in log if (one.kind, one.key) in names}
    found = [reason for one in log if one.body and one.seq not in void for reason in _reasons(one, log, rules)]
    if tool is None:
        return tuple(found)
    known = sorted({one.tool for one in found if one.tool is not None})
    if tool not in known:
        near = nearest_name(tool, known)
        remedy = f"did you mean `{displayed(near)}`?" if near else f"name one of {', '.join(map(displayed, known))}"
        detail = f"no entry of this run is about `{displayed(tool[:80])}`"
        raise InvalidInput(Problem("/tool", "unknown_tool", detail, remedy if known else "leave the tool out"))
    return tuple(one for one in found if one.tool in (tool, None))


def _reasons(entry: ReadEntry, log: Sequence[ReadEntry], rules: PinnedRules) -> Iterator[RunReason]:
    if entry.kind == "policy.decided":
        told = _decided(entry, log, rules)
    else:
        told = _TELLS[entry.kind](entry) if entry.kind in _TELLS else iter(())
    # A fact rests on the entry that has its value, so it names another one than the decision that read it.
    for topic, tool, text, *rest in told:
        seq = rest[0] if rest else entry.seq
        yield RunReason(topic, tool, text, seq, log[seq - 1].kind)


def _compiled(entry: ReadEntry) -> _Sentences:
    for tool in entry.body["context_ledger"]["tools"]:
        yield "shown", tool, f"`{displayed(tool)}` was shown: it is permitted, and policy allows it"
    for one in entry.body["manifests"].get("surface_report", ()):
        tool, why = one["capability_id"], one["reason"]
        if not one["surfaced"]:
            yield "shown", tool, f"`{displayed(tool)}` was hidden: {_HIDDEN.get(why, displayed(why))}"


_HIDDEN: Final = {
    "not_in_pack": "the pack does not list it",
    "no_permission": "the pack permits it to no role of the user and the agent",
    "scope_missing": "the delegation of the user has not the scope that it needs",
    "platform_scope_missing": "the agent has not the platform scope that it needs (`platform_scopes` in the directory)",
    "prohibited": "the pack prohibits it",
    "policy_denied": "policy denied it when the context was compiled",
    "above_safety_mode": "its approval mode is above the highest one of this run",
    "suspended": "it is suspended",
    "killed": "it is switched off",
}


def _decided(entry: ReadEntry, log: Sequence[ReadEntry], rules: PinnedRules) -> Iterator[Any]:
    """The decisions about calls, and those that deny; that a tool can be shown is said where it was."""
    for decision in entry.body.get("decisions", [entry.body]):
        tool, matched = decision.get("capability_id"), decision.get("matched_rule_ids", ())
        if tool is None or (decision["allowed"] and decision["point"] in ("compile", "plan")):
            continue
        named = matched if decision["allowed"] else decision.get("denying_rule_ids", ())
        again = " when the approval was used" if entry.key.startswith("redeem/") else ""
        yield "policy", tool, _verdict(decision, again, named, rules)
        for gate in decision.get("gates", ()) if decision["allowed"] else ():
            yield "gate", tool, _gate(gate, tool, decision, rules)
        for name in decision.get("prohibits", ()) if entry.key.partition("/")[0] != "compile" else ():
            by = ", ".join(
                displayed(one) for one in matched if one in rules.by_id and name in rules.by_id[one].then.prohibits
            )
            yield "policy", name, f"{by} prohibits `{displayed(name)}` from here on"
        unknown = sorted({fact for one in decision.get("indeterminate", ()) for fact in one["facts"]})
        if unknown:
            names = ", ".join(f"`{displayed(one)}`" for one in unknown)
            yield "fact", tool, f"not known, or of another type than a rule reads, were {names}"
        yield from _facts(entry, log, tool, [one for one in named if one in rules.by_id], rules)


def _verdict(decision: Mapping[str, Any], again: str, named: Sequence[str], rules: PinnedRules) -> str:
    where = f"`{displayed(decision['capability_id'])}` at {decision['point']}{again}"
    by = f" by {', '.join(displayed(one) for one in named)}" if named else ""
    if decision["allowed"]:
        mode = decision.get("effective_approval_mode")
        return f"policy allowed {where}{f' as {mode}' if mode else ''}{by}"
    because = "; ".join(
        dict.fromkeys(rules.by_id[one].rationale for one in named if one in rules.by_id and rules.by_id[one].rationale)
    )
    reason = decision["reason"]
    why = "a rule prohibits it from here on" if reason == "prohibited" else displayed(reason)
    return f"policy denied {where} ({why}){by}{f': {displayed(because)}' if because else ''}"


def _gate(gate: str, tool: str, decision: Mapping[str, Any], rules: PinnedRules) -> str:
    asking = [one for one in decision.get("matched_rule_ids", ()) if one in rules.by_id]
    asking = [one for one in asking if rules.by_id[one].then.requires_approval_gate == gate]
    why = (
        f"{', '.join(map(displayed, asking))} asks for it"
        if asking
        else f"the pack asks for a person before {an(str(decision.get('effective_approval_mode')))} call"
    )
    return f"{displayed(gate)} has to approve `{displayed(tool)}`: {why}"


def _facts(
    entry: ReadEntry, log: Sequence[ReadEntry], tool: str, named: Sequence[str], rules: PinnedRules
) -> Iterator[Any]:
    for rule_id in named:
        for path in facts_read(rules.by_id[rule_id]):
            found = fact_value(path, log, entry, tool, rules.produced)
            read = f"{displayed(rule_id)} read `{displayed(path)}`"
            if found is None:
                yield "fact", tool, f"{read}, which the journal has only in the digest of the decision"
            else:
                yield "fact", tool, f"{read}, which was {displayed_json(found.value)}", found.seq


def _identity(entry: ReadEntry) -> _Sentences:
    body = entry.body
    if not entry.key and "claim" in body:
        known = body["principals"]
        if known is None:
            why = displayed(body.get("claim_fault") or "the directory does not know the user and the agent")
            yield "authority", None, f"nobody was authorised: {why}"
            return
        user, agent = known["user"], known["agent"]
        roles = ", ".join(map(displayed, user["roles"])) or "no role"
        scopes = ", ".join(map(displayed, (known.get("delegation") or {}).get("scopes") or ())) or "nothing"
        acted = f"{displayed(agent['agent_id'])} acted for {displayed(user['user_id'])}"
        yield "authority", None, f"{acted}, who has {roles} and delegated {scopes}"
    elif body.get("approver"):
        who = body["approver"]
        granted = who.get("granted_by") or {}
        named = [f"{role} (granted by {granted[role]})" if role in granted else role for role in who["roles"]]
        late = "; the answer came after the deadline" if body.get("late") else ""
        held = ", ".join(map(displayed, named)) or "no role"
        yield "authority", None, f"{displayed(who['approver_id'])} held {held} when the answer was used{late}"


def _asked(entry: ReadEntry) -> _Sentences:
    body = entry.body
    tool, role = body["binding"]["capability_id"], body["required_role"]
    text = f"{displayed(body['gate_id'])} asked {an(displayed(role))} about {displayed_json(body['args'])}"
    yield "gate", tool, text
    rests = ", ".join(displayed(one["name"]) for one in body["evidence"])
    if rests:
        yield "fact", tool, f"the approver was shown the evidence {rests}"
    if untrusted := body["binding"]["untrusted"]:
        yield "fact", tool, f"nothing trusted has the arguments {', '.join(map(displayed, untrusted))}"


def _answered(entry: ReadEntry) -> _Sentences:
    body = entry.body
    reason = f": {displayed(body['reason'])}" if body["reason"] else ""
    proof = f" (proof: {displayed(body['assertion']['kind'])})"
    yield "authority", None, f"{displayed(body['approver'])} {displayed(body['verdict'])} it{proof}{reason}"


def _dispatched(entry: ReadEntry) -> _Sentences:
    envelope = entry.body["envelope"]
    tool, approval = envelope["capability_id"], entry.body.get("approval_id")
    by = f"under the approval {displayed(approval)}" if approval else "and nobody had to be asked"
    yield "call", tool, f"`{displayed(tool)}` was sent as {envelope['approval_mode_effective']}, {by}"


def _refused(entry: ReadEntry) -> _Sentences:
    envelope = entry.body["envelope"]
    tool = envelope["capability_id"]
    if made_by := envelope["metadata"].get("made_by"):
        said = f"was not sent again: {displayed(made_by['run_id'])} did the same operation"
    else:
        said = f"was refused: {displayed((envelope.get('error') or {}).get('message', envelope['status']))}"
    yield "call", tool, f"`{displayed(tool)}` {said}"


def _failures(what: str) -> Callable[[ReadEntry], _Sentences]:
    """Return a function for entries that list failures."""

    def told(entry: ReadEntry) -> _Sentences:
        for one in entry.body["failures"]:
            yield "call", one.get("capability_id"), f"{what}: {displayed(one['code'])}, {displayed(one['detail'])}"

    return told


def _answered_call(entry: ReadEntry) -> _Sentences:
    """A call that was made is never called refused, whatever followed from its answer."""
    what = {"done": "the call was made", "failed": "the call failed"}.get(entry.body["status"], "the call was refused")
    yield from _failures(what)(entry)


def _opened(entry: ReadEntry) -> _Sentences:
    for tool in entry.body["tools"]:
        yield "shown", tool, f"the agent of the session could call `{displayed(tool)}`"


def _asked_call(entry: ReadEntry) -> _Sentences:
    tool = entry.body["tool"]
    yield "call", tool, f"the agent asked for `{displayed(tool)}` with {displayed_json(entry.body['args'])}"


def _observed(entry: ReadEntry) -> _Sentences:
    for one in entry.body["findings"]:
        would = "asked a person" if one["verdict"] == "ask" else "denied the call"
        yield "policy", None, f"the pack observes; enforcing would have {would}: {displayed(one['detail'])}"


def _revised(entry: ReadEntry) -> _Sentences:
    for one in (entry.body.get("rationale") or {}).get("failures") or ():
        text = f"the run could not go on: {displayed(one['code'])}, {displayed(one['detail'])}"
        yield "call", one.get("capability_id"), text


def _one(topic: Topic, text: Callable[[Any], str]) -> Callable[[ReadEntry], _Sentences]:
    """Return a function for entries that are one sentence about the whole run."""

    def told(entry: ReadEntry) -> _Sentences:
        yield topic, None, text(entry.body)

    return told


_TELLS: Final[Mapping[str, Callable[[ReadEntry], _Sentences]]] = {
    "identity.resolved": _identity,
    "run.pinned": _one(
        "authority",
        lambda body: (
            f"the rules are those of {displayed(body['pack_ref'])}"
            if "pack_ref" in body
            else f"nothing was pinned: {displayed(body['failure']['detail'])}"
        ),
    ),
    "context.compiled": _compiled,
    "session.opened": _opened,
    "call.asked": _asked_call,
    "plan.verified": _failures("the plan was not accepted"),
    "call.observed": _observed,
    "call.answered": _answered_call,
    "approval.asked": _asked,
    "approval.answered": _answered,
    "approval.expired": _one("authority", lambda _: "nobody answered in time"),
    "approval.reasked": _one(
        "authority", lambda body: f"{displayed(body['by'])} had it asked again: {displayed(body['reason'])}"
    ),
    "approval.voided": _one("authority", lambda body: f"the approval did not hold: {displayed(body['reason'])}"),
    "effect.settled": _one(
        "authority",
        lambda body: f"{displayed(body['by'])} settled that it {'happened' if body['happened'] else 'did not happen'}",
    ),
    "run.cancel_requested": _one(
        "authority", lambda body: f"{displayed(body['by'])} cancelled the run: {displayed(body['reason'])}"
    ),
    "run.reopened": _one(
        "authority", lambda body: f"{displayed(body['by'])} reopened the run: {displayed(body['reason'])}"
    ),
    "tool.dispatching": _dispatched,
    "tool.refused": _refused,
    "record.revised": _revised,
}


def reasons_document(reasons: Iterable[RunReason]) -> list[dict[str, Any]]:
    """Return reasons as JSON objects."""
    return [
        {"topic": one.topic, "tool": one.tool, "text": one.text, "entry": one.entry, "kind": one.kind}
        for one in reasons
    ]
