"""Explain why a run did what it did, in plain sentences, each with the journal entry that it rests on.

The reasons of an entry are those of its kind (`Kind.why`); those of a policy decision need the rules that the run is
pinned to. `explain` is a pure function of both. It says only what an entry says, and leaves out erased entries. Text
from tools and users is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.encoding.display_escape import an, displayed, displayed_json
from contextos.contracts.entries.account import void_answers
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.entries.reading import logged
from contextos.contracts.entries.row import Topic, filled
from contextos.contracts.facts import nearest_name
from contextos.deployment.why.fact_values import Produced, fact_value, facts_read
from contextos.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.contracts.envelopes.policy import Rule
    from contextos.contracts.journal import Entry, Logged


@dataclass(frozen=True, slots=True)
class PinnedRules:
    """The pinned content that a run's journal only names: the rules by id, and, by tool, the names of the evidence that
    the tool produces.
    """

    by_id: Mapping[str, Rule]
    produced: Produced


NO_RULES: Final = PinnedRules({}, {})


@dataclass(frozen=True, slots=True)
class RunReason:
    """One sentence about a run. `tool` is the tool that it is about, or None for the whole run.

    It rests on the entry of the run with the number `entry` and the kind `kind`. Topics: `shown` (why a tool was shown
    or hidden), `policy` (what policy said of it), `gate` (why a person was asked), `fact` (which facts decided),
    `authority` (who acted, and who authorised), `model` (why a model was asked or passed over, and what it answered)
    and `call` (what became of a call).
    """

    topic: Topic
    tool: str | None
    text: str
    entry: int
    kind: str


def explain(entries: Sequence[Entry], rules: PinnedRules = NO_RULES, tool: str | None = None) -> tuple[RunReason, ...]:
    """Return the reasons of a run in the order in which they arose; with `tool`, only those about that tool or the run.

    Raises:
        InvalidInput: no entry of the run is about this tool (`unknown_tool`).
    """
    log = logged(entries)
    void_seqs = set(void_answers(log))
    # The answer and the look-up behind it would say who approved, but a void approval counts as none.
    names = {("identity.resolved", f"redeem/{log[seq - 1].key}") for seq in void_seqs}
    void_seqs |= {entry.seq for entry in log if (entry.kind, entry.key) in names}
    reasons = [
        reason
        for entry in log
        if entry.body and entry.seq not in void_seqs
        for reason in _entry_reasons(entry, log, rules)
    ]
    if tool is None:
        return tuple(reasons)
    tools = sorted({reason.tool for reason in reasons if reason.tool is not None})
    if tool not in tools:
        nearest = nearest_name(tool, tools)
        remedy = (
            f"did you mean `{displayed(nearest)}`?" if nearest else f"name one of {', '.join(map(displayed, tools))}"
        )
        detail = f"no entry of this run is about `{displayed(tool[:80])}`"
        raise InvalidInput(Problem("/tool", "unknown_tool", detail, remedy if tools else "leave the tool out"))
    return tuple(reason for reason in reasons if reason.tool in (tool, None))


def _entry_reasons(entry: Logged, log: Sequence[Logged], rules: PinnedRules) -> Iterator[RunReason]:
    template = KINDS[entry.kind].why if entry.kind in KINDS else None
    parts: Iterable[Any] = ()
    if entry.kind == "policy.decided":
        parts = _decision_reasons(entry, log, rules)
    elif isinstance(template, tuple):
        parts = ((template[0], None, filled(template[1], entry.body)),)
    elif template is not None:
        parts = template(entry)
    # A fact rests on the entry that has its value, not on the decision that read it.
    for topic, tool, text, *rest in parts:
        seq = rest[0] if rest else entry.seq
        yield RunReason(topic, tool, text, seq, log[seq - 1].kind)


def _decision_reasons(entry: Logged, log: Sequence[Logged], rules: PinnedRules) -> Iterator[Any]:
    """Yield the reasons for decisions about calls and decisions that deny. An allowed tool is reported where it was
    shown.
    """
    for decision in entry.body.get("decisions", [entry.body]):
        tool, matched = decision.get("capability_id"), decision.get("matched_rule_ids", ())
        if tool is None or (decision["allowed"] and decision["point"] in ("compile", "plan")):
            continue
        rule_ids = matched if decision["allowed"] else decision.get("denying_rule_ids", ())
        suffix = " when the approval was used" if entry.key.startswith("redeem/") else ""
        yield "policy", tool, _verdict_text(decision, suffix, rule_ids, rules)
        for gate in decision.get("gates", ()) if decision["allowed"] else ():
            yield "gate", tool, _gate_text(gate, tool, decision, rules)
        for name in decision.get("prohibits", ()) if entry.key.partition("/")[0] != "compile" else ():
            by = ", ".join(
                displayed(rule) for rule in matched if rule in rules.by_id and name in rules.by_id[rule].then.prohibits
            )
            yield "policy", name, f"{by} prohibits `{displayed(name)}` from here on"
        unknown = sorted({fact for rule in decision.get("indeterminate", ()) for fact in rule["facts"]})
        if unknown:
            names = ", ".join(f"`{displayed(fact)}`" for fact in unknown)
            yield "fact", tool, f"not known, or of another type than a rule reads, were {names}"
        yield from _facts(entry, log, tool, [rule_id for rule_id in rule_ids if rule_id in rules.by_id], rules)


def _verdict_text(decision: Mapping[str, Any], suffix: str, rule_ids: Sequence[str], rules: PinnedRules) -> str:
    where = f"`{displayed(decision['capability_id'])}` at {decision['point']}{suffix}"
    by = f" by {', '.join(displayed(rule) for rule in rule_ids)}" if rule_ids else ""
    if decision["allowed"]:
        mode = decision.get("effective_approval_mode")
        return f"policy allowed {where}{f' as {mode}' if mode else ''}{by}"
    rationales = "; ".join(
        dict.fromkeys(
            rules.by_id[rule].rationale for rule in rule_ids if rule in rules.by_id and rules.by_id[rule].rationale
        )
    )
    reason = decision["reason"]
    cause = "a rule prohibits it from here on" if reason == "prohibited" else displayed(reason)
    return f"policy denied {where} ({cause}){by}{f': {displayed(rationales)}' if rationales else ''}"


def _gate_text(gate: str, tool: str, decision: Mapping[str, Any], rules: PinnedRules) -> str:
    asking = [rule for rule in decision.get("matched_rule_ids", ()) if rule in rules.by_id]
    asking = [rule for rule in asking if rules.by_id[rule].then.requires_approval_gate == gate]
    cause = (
        f"{', '.join(map(displayed, asking))} asks for it"
        if asking
        else f"the pack asks for a person before {an(str(decision.get('effective_approval_mode')))} call"
    )
    return f"{displayed(gate)} has to approve `{displayed(tool)}`: {cause}"


def _facts(entry: Logged, log: Sequence[Logged], tool: str, ids: Sequence[str], rules: PinnedRules) -> Iterator[Any]:
    for rule_id in ids:
        for path in facts_read(rules.by_id[rule_id]):
            fact = fact_value(path, log, entry, tool, rules.produced)
            read = f"{displayed(rule_id)} read `{displayed(path)}`"
            if fact is None:
                yield "fact", tool, f"{read}, which the journal has only in the digest of the decision"
            else:
                yield "fact", tool, f"{read}, which was {displayed_json(fact.value)}", fact.seq


def reasons_document(reasons: Iterable[RunReason]) -> list[dict[str, Any]]:
    """Return reasons as JSON objects."""
    return [
        {"topic": reason.topic, "tool": reason.tool, "text": reason.text, "entry": reason.entry, "kind": reason.kind}
        for reason in reasons
    ]
