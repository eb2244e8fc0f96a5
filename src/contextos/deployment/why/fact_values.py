"""Find in the journal of a run the values that the facts of a policy rule had when it decided.

A decision records the digest of all its facts, not the facts. Most values are in an entry: the arguments in the call,
the evidence where it was retrieved or returned, user and agent where they were resolved. The value of any other fact is
not guessed: the journal has it only as a digest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from contextos.trust.policy.conditions import analyse_condition

if TYPE_CHECKING:
    from contextos.contracts.envelopes.policy import Rule
    from contextos.contracts.journal import Logged


Produced = Mapping[str, Sequence[str]]
"""By tool, the names of the evidence that the tool produces."""


class FactValue(NamedTuple):
    """The value of a fact, and the number of the entry that has it."""

    value: Any
    seq: int


def facts_read(rule: Rule) -> list[str]:
    """Return the paths of the facts that a rule reads, sorted."""
    return [fact.path for fact in analyse_condition(rule.condition, rule.facts).facts]


def fact_value(path: str, log: Sequence[Logged], decided: Logged, tool: str, produced: Produced) -> FactValue | None:
    """Return the value that a fact had when `decided` was made about `tool`, or None if no entry of the run has it."""
    root, _, rest = path.partition(".")
    before = log[: bisect_right(log, decided.seq, key=lambda entry: entry.seq)]
    step = decided.key.partition("/")[2]
    if root == "args":
        # The call itself can follow the decision that allows it.
        return _first_value(_call_arguments(log, before, tool, step), rest) or _planned_value(before, step, rest)
    if root == "evidence":
        # The name of evidence can have dots in it, like the name of a tool.
        parts = rest.split(".")
        places = ((".".join(parts[:length]), ".".join(parts[length:])) for length in range(len(parts), 0, -1))
        values = (_evidence_value(log, before, name, member, step, produced) for name, member in places)
        return next((value for value in values if value is not None), None)
    if root in ("user", "agent"):
        return _first_value(_principal_values(before, root), rest)
    if root == "request":
        requests = (
            (entry.body["request"], entry.seq) for entry in before if entry.kind == "run.received" and entry.body
        )
        return _first_value(requests, rest)
    return None


def _requests(before: Sequence[Logged]) -> Iterator[tuple[Any, int]]:
    return ((entry.body["request"], entry.seq) for entry in before if entry.kind == "run.received" and entry.body)


def _call_arguments(log: Sequence[Logged], before: Sequence[Logged], tool: str, step: str) -> Iterator[tuple[Any, int]]:
    """Yield the arguments of a tool's call at a step, each with the number of its entry."""
    for entry in log:
        if not entry.body:
            continue
        at_step = entry.key == step or entry.key.startswith(f"{step}/")
        if entry.kind == "approval.asked" and at_step:
            yield entry.body["args"], entry.seq
        elif entry.kind == "tool.dispatching" and at_step and entry.body["envelope"]["capability_id"] == tool:
            yield entry.body["envelope"]["args"], entry.seq
    for entry in reversed(before):
        if entry.kind == "call.asked" and entry.body and entry.body["tool"] == tool:
            yield entry.body["args"], entry.seq
            return


def _planned_value(before: Sequence[Logged], step: str, name: str) -> FactValue | None:
    """Return the argument of a planned call that was never sent, if the plan takes it from the request or a
    parameter.
    """
    revision, _, step_id = step.partition("/")
    for entry in before:
        if entry.kind != "plan.proposed" or entry.key != revision or not entry.body:
            continue
        params: Mapping[str, Any] = next((item["params"] for item in entry.body["steps"] if item["id"] == step_id), {})
        source = params.get(name)
        if isinstance(source, Mapping) and source.get("from") == "parameter":
            parameters = (
                ({parameter["name"]: parameter["value"] for parameter in entry.body["parameters"]}, entry.seq)
                for entry in before
                if entry.kind == "parameters.taken" and entry.body
            )
            return _first_value(parameters, source["pointer"].lstrip("/"))
        if isinstance(source, Mapping) and source.get("from") == "request":
            path = ".".join(source["pointer"].lstrip("/").split("/"))
            requests = (
                (entry.body["request"], entry.seq) for entry in before if entry.kind == "run.received" and entry.body
            )
            return _first_value(requests, path)
    return None


def _evidence_value(
    log: Sequence[Logged], before: Sequence[Logged], name: str, member: str, step: str, produced: Produced
) -> FactValue | None:
    """Return the value of evidence of this name: of the piece that the call rests on, or any if all have the same."""
    pieces: list[tuple[str, Any, int]] = []
    chosen: str | None = None
    for entry in before:
        if not entry.body:
            continue
        if entry.kind == "evidence.retrieved":
            items = [item for item in entry.body if item.get("name") == name]
            pieces += [(item["evidence_ref"], item["value"], entry.seq) for item in items]
        elif entry.kind == "tool.returned" and entry.body["outcome"] == "returned":
            envelope = entry.body["envelope"]
            if name in produced.get(envelope["capability_id"], ()):
                refs = [cited["evidence_ref"] for cited in envelope.get("citations", ())]
                pieces += [(ref, envelope.get("output"), entry.seq) for ref in refs]
        elif entry.kind == "checkpoint.checked":
            chosen = entry.body["satisfied"].get(name, chosen)
    for entry in log:
        # The evidence of a call is fixed after policy has allowed it.
        if entry.kind == "evidence.frozen" and entry.key == step and entry.body:
            refs = [item["evidence_ref"] for item in entry.body["items"] if item["name"] == name]
            chosen = refs[-1] if refs else chosen
    matching = [(value, seq) for ref, value, seq in pieces if chosen in (None, ref)]
    values = [fact for piece in reversed(matching) if (fact := _first_value(iter([piece]), member)) is not None]
    return values[0] if values and all(fact.value == values[0].value for fact in values) else None


def _principal_values(before: Sequence[Logged], role: str) -> Iterator[tuple[Any, int]]:
    """Yield the user or the agent as it was resolved, the last time first."""
    for entry in reversed(before):
        if entry.kind == "identity.resolved" and entry.body and role in (entry.body.get("principals") or ()):
            yield entry.body["principals"][role], entry.seq


def _first_value(candidates: Iterator[tuple[Any, int]], path: str) -> FactValue | None:
    """Return the first value that has something at this dotted path ("": the value itself)."""
    for value, seq in candidates:
        current = value
        for name in path.split(".") if path else ():
            current = current.get(name, _MISSING) if isinstance(current, Mapping) else _MISSING
        if current is not _MISSING:
            return FactValue(current, seq)
    return None


_MISSING = object()
