"""The story of a run, computed from its journal: request, knowledge, permissions, effects, approvals, outcome, cost.

`tell_story` is a pure function of the entries. Erased bodies are listed, and control characters in text from outside
are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.encoding.display_escape import an, displayed, displayed_json
from contextos.contracts.entries.account import void_answers
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.record import UNSAFE_OBSERVED
from contextos.contracts.statements.questions import escape_all
from contextos.trust.approvals.cancel_requests import UNPROVED_CANCEL

if TYPE_CHECKING:
    from contextos.contracts.journal import Entry

NO_RATIONALES: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """A journal entry with its parsed body; `body` is None if it was erased. `rationales` says why rules exist."""

    seq: int
    kind: str
    key: str
    at_us: int
    by: str
    body: Any
    rationales: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of a run's story. `after_us` is the time since the run began in µs, or None if the line has no time."""

    text: str
    after_us: int | None = None


Story = dict[str, list[Moment]]


def tell_story(entries: Sequence[Entry], rationales: Mapping[str, str] = NO_RATIONALES) -> Story:
    """Return the story of a run (what was asked, known, allowed, done), as sections in order, without empty ones.

    `rationales` says why rules that deny exist, by rule id (`queries.rationales`).
    """
    log = [ReadEntry(one.seq, one.kind, one.key, one.at_us, one.by, read_body(one), rationales) for one in entries]
    start_us = log[0].at_us if log else 0
    story: Story = {}
    for title, part in PARTS.items():
        moments = [Moment(text, None if at_us is None else at_us - start_us) for text, at_us in part(log)]
        if moments:
            story[title] = moments
    return story


def story_document(story: Story) -> dict[str, list[dict[str, Any]]]:
    """Return a run's story as a JSON object."""
    return {
        title: [{"text": m.text} | ({} if m.after_us is None else {"after_us": m.after_us}) for m in moments]
        for title, moments in story.items()
    }


StoryLines = Iterator[tuple[str, int | None]]


def _request(log: Sequence[ReadEntry]) -> StoryLines:
    for entry in _of(log, "run.received"):
        request = entry.body["request"]
        given = request["input"]
        yield displayed(given["message"]), entry.at_us
        named, user, agent = request["request_id"], request["user"]["user_id"], request["agent"]["agent_id"]
        yield f"request {displayed(named)}, intent {displayed(given['intent'])}, mode {request['mode']}", None
        yield f"user {displayed(user)} through agent {displayed(agent)}", None


def _knowledge(log: Sequence[ReadEntry]) -> StoryLines:
    for entry in _of(log, "run.pinned"):
        if "pack_ref" in entry.body:
            pinned = f"{len(entry.body['pins'])} things pinned by digest"
            yield f"pack {entry.body['pack_ref']}, facts as of {entry.body['snapshot']}; {pinned}", entry.at_us
    pinned_slots = {entry.key: entry for entry in _of(log, "slot.pinned")}
    for entry in _of(log, "slot.selected"):
        yield _slot(entry, pinned_slots.get(entry.key)), entry.at_us
    for entry in _of(log, "attachment.fetched"):
        fault = entry.body.get("failure", {}).get("detail")
        yield displayed(fault or f"{entry.body['evidence_ref']} is as its digest says"), entry.at_us
    for entry in _of(log, "evidence.retrieved"):
        for item in entry.body:
            if item.get("name"):
                where = f"{item['integrity']}, {displayed(item['evidence_ref'])}"
                what = f"{displayed(item['name'])} is {displayed_json(item['value'])} of {displayed(item['subject'])}"
                yield f"{what} ({where})", entry.at_us
        if others := sum(not item.get("name") for item in entry.body):
            yield f"{others} more facts around {', '.join(_subjects(entry.body))}", None
    for entry in _of(log, "memory.recalled"):
        for item in entry.body:
            what = f"{displayed(item['subject'])} {displayed(item['predicate'])} {displayed_json(item['value'])}"
            yield f"remembers: {what} ({item['integrity']})", entry.at_us
    for entry in _of(log, "context.compiled"):
        ledger, report = entry.body["context_ledger"], entry.body["budget_report"]
        dropped = sum(len(blocks) for blocks in report["dropped_block_ids"].values())
        tokens, address = report["tokens_used_at_compile"], ledger["compiled_context_hash"][:19]
        yield f"compiled to {tokens} tokens, {dropped} blocks left out, {address}", entry.at_us
    for entry in _of(log, "run.received"):
        if stated := entry.body["request"]["input"].get("context", {}):
            yield f"only stated by the caller, and no evidence: {displayed_json(stated)}", None


def _slot(entry: ReadEntry, filled: ReadEntry | None) -> str:
    """What a slot holds and who selected it. `filled` is the entry with the contents, or None before that."""
    slot_id = displayed(entry.key.partition("/")[2])
    for body in (entry.body, filled.body if filled else {}):
        if "refused" in body:
            return f"slot {slot_id} holds nothing: {displayed(body['refused'])}"
    selection = entry.body["act"]
    who = (
        f"{displayed(selection['origin']['principal_id'])} picked"
        if selection["selected_by"] == "user"
        else "nobody picked"
    )
    held = ", ".join(
        f"{displayed(pin['title'])} ({pin['ref']['sourceScope']})" for pin in (filled.body["pinned"] if filled else ())
    )
    return f"slot {slot_id} holds {held or 'nothing'}; {who}"


def _subjects(items: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(displayed(item["subject"]) for item in items))[:3]


def _permissions(log: Sequence[ReadEntry]) -> StoryLines:
    for entry in log:
        if entry.kind == "context.compiled" and entry.body:
            shown = entry.body["context_ledger"]["tools"]
            yield f"shown to the planner: {', '.join(shown) or 'nothing'}", entry.at_us
            for one in entry.body["manifests"].get("surface_report", ()):
                if not one["surfaced"]:
                    yield f"kept from it: {displayed(one['capability_id'])} ({displayed(one['reason'])})", None
        elif entry.kind == "session.opened" and entry.body:
            yield f"the agent can call: {', '.join(entry.body['tools']) or 'nothing'}", entry.at_us
        elif entry.kind == "call.asked" and entry.body:
            call = f"{displayed(entry.body['tool'])} {displayed_json(entry.body['args'])}"
            yield f"the agent asks for {call} as {displayed(entry.key)}", entry.at_us
        elif entry.kind == "call.answered" and entry.body:
            why = "".join(f"; {failure['code']}: {displayed(failure['detail'])}" for failure in entry.body["failures"])
            yield f"{displayed(entry.key)} is {entry.body['status']}{why}", entry.at_us
        elif entry.kind == "session.finished" and entry.body:
            reason = f": {displayed(entry.body['reason'])}" if entry.body["reason"] else ""
            yield f"the agent finishes as {entry.body['outcome']}{reason}", entry.at_us
        elif entry.kind == "session.expired":
            yield "the agent did not finish in time", entry.at_us
        elif entry.kind == "plan.verified" and entry.body:
            why = "".join(f"; {failure['code']}: {displayed(failure['detail'])}" for failure in entry.body["failures"])
            yield f"plan {int(entry.key) + 1} verified: {entry.body['verdict']}{why}", entry.at_us
        elif entry.kind == "call.observed" and entry.body:
            for one in entry.body["findings"]:
                rules = ", ".join(displayed(rule) for rule in one.get("rule_ids", ())) or displayed(one["code"])
                would = "ask a person" if one["verdict"] == "ask" else "deny"
                yield (
                    f"not enforced: {entry.body['by']} would {would} by {rules}; {displayed(one['detail'])}",
                    entry.at_us,
                )
        elif entry.kind == "policy.decided" and entry.body:
            for decision in entry.body.get("decisions", [entry.body]):
                # At compile and plan only denials are listed: an allowed call is decided again at execute.
                if decision["point"] == "execute" or not decision["allowed"]:
                    verdict = _verdict(decision, entry.rationales)
                    yield f"{displayed(decision.get('capability_id'))} at {decision['point']}: {verdict}", entry.at_us


def _verdict(decision: Mapping[str, Any], rationales: Mapping[str, str]) -> str:
    """The verdict in words: allowed or denied, the approval mode, the gates it needs, the rules that matched, and why
    those that deny exist.
    """
    words = ["allowed" if decision["allowed"] else f"denied ({decision['reason']})"]
    if decision["allowed"] and decision.get("effective_approval_mode"):
        words.append(f"as {decision['effective_approval_mode']}")
    verdict = " ".join(words)
    gates = ", ".join(decision.get("gates", ())) if decision["allowed"] else ""
    rules = decision.get("denying_rule_ids") or decision.get("matched_rule_ids") or ()
    if gates:
        verdict += f", needs {gates}"
    if rules:
        verdict += f"{',' if gates else ''} by {', '.join(map(displayed, rules))}"
    if because := [] if decision["allowed"] else [rationales[one] for one in rules if one in rationales]:
        verdict += f": {displayed('; '.join(dict.fromkeys(because)))}"
    unknown = sorted({fact for one in decision.get("indeterminate", ()) for fact in one["facts"]})
    return f"{verdict}; not known: {', '.join(map(displayed, unknown))}" if unknown else verdict


def _effects(log: Sequence[ReadEntry]) -> StoryLines:
    how = ""
    for entry in log:
        if entry.kind == "tool.retry_scheduled" and entry.body:
            how = entry.body["how"]
            yield f"{_RETRIES[how]} after a wait of {_duration(entry.body['at_us'] - entry.at_us)}", entry.at_us
        elif entry.kind == "tool.dispatching" and entry.body:
            envelope, mode = entry.body["envelope"], entry.body["mode"]
            asks = _RETRIES[how] if how == "send_again" else "asks what became of it"
            again, how = f" ({asks})" if mode == "reconcile" else "", ""
            yield f"calls {displayed(envelope['capability_id'])} {displayed_json(envelope['args'])}{again}", entry.at_us
        elif entry.kind == "tool.returned" and entry.body:
            yield _returned(entry.body), entry.at_us
        elif entry.kind == "tool.refused" and entry.body:
            yield _not_sent(entry.body["envelope"]), entry.at_us
        elif entry.kind == "effect.settled" and entry.body:
            what = "happened" if entry.body["happened"] else "did not happen"
            by, evidence = displayed(entry.body["by"]), displayed(entry.body["evidence_ref"])
            yield f"{by} settles: it {what} ({evidence})", entry.at_us
        elif entry.kind == "run.resumed":
            yield "driven on from the journal", entry.at_us


_RETRIES: Final = {
    "send": "nothing was sent; it is sent",
    "send_again": "sent again under the same key",
    "look_up": "looked up again",
}
"""What a scheduled attempt does, in words."""


def _duration(us: int) -> str:
    return f"{us / 1e6:.1f} s" if us < 120_000_000 else f"{us / 6e7:.0f} min"


def _not_sent(envelope: Mapping[str, Any]) -> str:
    what, made_by = displayed(envelope["capability_id"]), envelope["metadata"].get("made_by")
    if made_by:
        return (
            f"{what} was done before by {displayed(made_by['run_id'])}; its answer counts here too: {_said(envelope)}"
        )
    return f"gateway refuses {what}: {displayed((envelope.get('error') or {}).get('message', envelope['status']))}"


def _returned(body: Mapping[str, Any]) -> str:
    envelope = body["envelope"]
    if body["outcome"] == "unknown" and not body.get("no_record"):
        return "no answer: it is not known whether it happened"
    if body["outcome"] == "unknown":
        return displayed(envelope["error"]["message"])
    if envelope.get("error"):
        return f"{envelope['status']}: {displayed(envelope['error']['message'])}"
    changed = "".join(f"; changed {displayed(one)}" for one in envelope.get("mutations", ()))
    found = "it was done before the restore, and was not sent again: " if body.get("done_before") else ""
    return f"{found}{envelope['status']} {_said(envelope)}{changed}"


def _said(envelope: Mapping[str, Any]) -> str:
    """What a tool answered, or why nobody reads it."""
    if withheld := envelope.get("withheld"):
        return f"(its answer is withheld: {withheld['code']}, {displayed(withheld['detail'])})"
    made = "".join(f", and made {displayed(one['name'])}" for one in envelope.get("artifacts", ()))
    return f"{displayed_json(envelope.get('output'))}{made}"


_BY: Final = {"run.cancel_requested": "{} cancels: {}", "approval.reasked": "{} has it asked again: {}"}
_PROOFS: Final = {"jws": "signed with their key", "oidc": "proved by their login", "webauthn": "by their passkey"}


def _approvals(log: Sequence[ReadEntry]) -> StoryLines:
    for entry in log:
        if entry.kind == "approval.asked" and entry.body:
            evidence = ", ".join(displayed(one["name"]) for one in entry.body["evidence"])
            role, what = displayed(entry.body["required_role"]), displayed(entry.body["binding"]["capability_id"])
            yield f"{entry.body['gate_id']} asks {an(role)} about {what}", entry.at_us
            yield f"shown: {displayed_json(escape_all(entry.body['args']))}; evidence: {evidence or 'none'}", None
        elif entry.kind == "approval.answered" and entry.body:
            how = _PROOFS.get(kind := entry.body["assertion"]["kind"], f"not signed ({displayed(kind)})")
            reason = f": {displayed(entry.body['reason'])}" if entry.body["reason"] else ""
            said = f"{displayed(entry.body['approver'])} {entry.body['verdict']}{reason}; {how}"
            yield "an answer came that does not count" if entry.seq in void_answers(log) else said, entry.at_us
        elif entry.kind == "evidence.rechecked" and entry.body:
            yield f"{entry.body['bound']} pins and facts asked again before it counts", entry.at_us
        elif entry.kind in _BY and entry.body:
            yield _BY[entry.kind].format(*(displayed(entry.body[name]) for name in ("by", "reason"))), entry.at_us
        elif entry.kind == "approval.voided" and entry.body:
            yield f"void: {displayed(entry.body['reason'])}", entry.at_us
        elif entry.kind == "approval.expired":
            yield "nobody answered in time", entry.at_us
        elif entry.kind == "run.cancel_unproved":
            yield f"{UNPROVED_CANCEL}; it cancels nothing", entry.at_us


def _outcome(log: Sequence[ReadEntry]) -> StoryLines:
    for entry in log:
        if entry.kind == "run.ended" and entry is not log[-1]:
            yield f"it ended as {entry.body['end']}" if entry.body else "it ended", entry.at_us
        elif entry.kind == "run.reopened" and entry.body:
            more = f" with `{entry.body['limit']}` {entry.body['to']:g}" if entry.body.get("limit") else ""
            yield f"{displayed(entry.by)} reopened it{more}: {displayed(entry.body['reason'])}", entry.at_us
    # Until a reopened run has a new record, its last one is that of an earlier end.
    goes_on = max((number for number, entry in enumerate(log) if entry.kind == "run.reopened"), default=-1) + 1
    for record in _last_record(log[goes_on:]):
        outcome = f", {record['outcome']}" if record.get("outcome") else ""
        spec = f"{record['decision_key']}@{record['decision_version']}"
        yield f"{record['status']}{outcome}: {spec}, record {record['record_id']}", log[-1].at_us
        for failure in (record.get("rationale") or {}).get("failures", ()):
            yield f"{failure['code']}: {displayed(failure['detail'])}", None
        for name, value in record["outputs"].items():
            yield f"{displayed(name)}: {displayed_json(value)}", None
        for card in [one.body for one in _of(log, "run.scored") if one.key == record.get("scored")][-1:]:
            axes = ("policy", "utility", "latency", "safety", "economics")
            yield "scored " + ", ".join(f"{axis} {card[axis]['score']:g} {card[axis]['status']}" for axis in axes), None
        unsafe = (record.get("lineage") or {}).get("unsafe", ())
        if UNSAFE_OBSERVED in unsafe:
            yield "observed, not enforced: the pack stopped no call and asked nobody", None
        if stand_ins := [one for one in unsafe if one != UNSAFE_OBSERVED]:
            yield f"development stand-ins: {', '.join(stand_ins)}", None
    if proposed := [one for entry in _of(log, "memory.proposed") for one in entry.body["proposals"]]:
        yield f"{len(proposed)} memories proposed; a person promotes them or not", None


def _costs(log: Sequence[ReadEntry]) -> StoryLines:
    limits: dict[str, Any] = {}
    for entry in log:
        if entry.kind == "run.context" and entry.body:
            limits |= entry.body["run_budget"]
        elif entry.kind == "run.reopened" and entry.body and entry.body.get("limit"):
            limits[entry.body["limit"]] = entry.body["to"]
    for record in _last_record(log):
        used = record["budget_usage"]
        amounts = [
            _of_limit(f"{used['tokens']}", limits.get("total_tokens"), "tokens"),
            _of_limit(f"{used['tool_calls']}", limits.get("max_tool_calls"), "tool calls"),
            _of_limit(f"{used['cost_usd_cents']:g}", limits.get("max_cost_cents"), "US cents"),
            _of_limit(f"{used['wall_clock_ms']:.1f}", limits.get("wall_clock_ms"), "ms without waiting"),
        ]
        yield ", ".join(amounts), None


def _replay(log: Sequence[ReadEntry]) -> StoryLines:
    for record in _last_record(log):
        run_id = record["replay"]["run_id"]
        yield f"record hash {record['record_hash'][:19]}, {len(log)} journal entries", None
        if log[-1].kind == "run.ended":
            yield f"contextos replay {run_id}", None
        else:
            yield "the run has not ended; replay it when it has", None


def _erased(log: Sequence[ReadEntry]) -> StoryLines:
    gone = [str(entry.seq) for entry in log if entry.body is None]
    if gone:
        yield (
            f"the content of entries {', '.join(gone)} of {len(log)}; the chain still covers that they were there",
            None,
        )


PARTS: Final = {
    "What was asked": _request,
    "What it knew": _knowledge,
    "What it was allowed": _permissions,
    "What it did": _effects,
    "Who approved": _approvals,
    "What came of it": _outcome,
    "What it cost": _costs,
    "How to replay it": _replay,
    "What was erased": _erased,
}


def _last_record(log: Sequence[ReadEntry]) -> list[dict[str, Any]]:
    """The current decision record, in a list; empty if there is none."""
    return [entry.body for entry in _of(log, "record.revised")][-1:]


def _of_limit(used: str, limit: float | None, unit: str) -> str:
    return f"{used} {unit}" if limit is None else f"{used} of {limit:g} {unit}"


def _of(log: Iterable[ReadEntry], kind: str) -> Iterator[ReadEntry]:
    return (entry for entry in log if entry.kind == kind and entry.body)
