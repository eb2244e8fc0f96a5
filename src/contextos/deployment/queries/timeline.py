"""Tell the story of a run from its journal: request, knowledge, permissions, effects, approvals, outcome, cost.

The lines of an entry are those of its kind (`Kind.story`); the outcome and the cost of a run are read from its record.
`tell_story` is a pure function of the entries. Erased bodies are listed, and control characters in text from outside
are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.encoding.display_escape import displayed, displayed_json
from contextos.contracts.entries.account import cents
from contextos.contracts.entries.kinds import KINDS, account_of
from contextos.contracts.entries.reading import logged
from contextos.contracts.entries.row import Aside, StoryReader, filled
from contextos.contracts.envelopes.record import UNSAFE_OBSERVED
from contextos.deployment.queries.model_costs import add_calls

if TYPE_CHECKING:
    from contextos.contracts.entries.account import RunAccount
    from contextos.contracts.journal import Entry, Logged

NO_RATIONALES: Final[Mapping[str, str]] = MappingProxyType({})
PARTS: Final[Mapping[str, str]] = {
    "asked": "What was asked",
    "knew": "What it knew",
    "allowed": "What it was allowed",
    "did": "What it did",
    "approved": "Who approved",
    "came": "What came of it",
    "cost": "What it cost",
    "replay": "How to replay it",
    "erased": "What was erased",
}
"""The sections of a story, by the name of the part. The last three are about the whole run."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One line of a run's story. `after_us` is the time since the run began in µs, or None if the line has no time.

    `seq` is the number of the entry that the line tells, or None if it tells no single one. `step` is the step of the
    plan to which that entry belongs, which tells parallel steps from each other; "" for no step.
    """

    text: str
    after_us: int | None = None
    seq: int | None = None
    step: str = ""


Story = dict[str, list[Moment]]
_STEP: Final = re.compile(r"(?:^|/)[0-9]+/([A-Za-z_][A-Za-z0-9_.-]{0,63})(?:/[0-9]+)?$")


def tell_story(entries: Sequence[Entry], rationales: Mapping[str, str] = NO_RATIONALES) -> Story:
    """Return the story of a run (what was asked, known, allowed, done), as sections in order, without empty ones.

    `rationales` says why rules that deny exist, by rule id (`deployment.queries.rationales`).
    """
    log = logged(entries)
    reader = StoryReader(account_of(entries[0].run if entries else "", log), rationales)
    story: Story = {title: [] for title in PARTS.values()}
    for entry in log:
        for part, sentence in KINDS[entry.kind].story.items() if entry.kind in KINDS else ():
            if isinstance(sentence, str):
                texts = iter((filled(sentence, entry.body or {}),) if entry.body or "{" not in sentence else ())
            else:
                texts = sentence(entry, reader) if entry.body else iter(())
            after_us = entry.at_us - log[0].at_us
            step = step_of(entry.key)
            story[PARTS[part]] += [
                Moment(text, None if isinstance(text, Aside) else after_us, entry.seq, step) for text in texts
            ]
    if log:
        story[PARTS["came"]] += _outcome_moments(log, reader.run)
        story[PARTS["cost"]] = list(map(Moment, _cost_lines(reader.run)))
        story[PARTS["replay"]] = list(map(Moment, _replay_lines(log, reader.run)))
        story[PARTS["erased"]] = list(map(Moment, _erased_lines(log)))
    return {title: moments for title, moments in story.items() if moments}


def step_of(key: str) -> str:
    """Return the step of a plan that the key of an entry names, or "".

    >>> step_of("0/s1/1"), step_of("execute/0/s3"), step_of("compile/0")
    ('s1', 's3', '')
    """
    named = _STEP.search(key)
    return named[1] if named else ""


def story_document(story: Story) -> dict[str, list[dict[str, Any]]]:
    """Return a run's story as a JSON object."""
    return {
        title: [
            {"text": line.text} | ({} if line.after_us is None else {"after_us": line.after_us}) for line in moments
        ]
        for title, moments in story.items()
    }


def _outcome_moments(log: Sequence[Logged], run: RunAccount) -> Iterator[Moment]:
    # Until a reopened run has a new record, its last record is from an earlier end.
    reopened = run.last("run.reopened")
    record = _last_record(run, after=reopened.seq if reopened else 0)
    if record is not None:
        yield from _decision_moments(record, log[-1].at_us - log[0].at_us)
    if proposed := [item for entry in run.of("memory.proposed") if entry.body for item in entry.body["proposals"]]:
        yield Moment(f"{len(proposed)} memories proposed; a person promotes them or not")


def _decision_moments(record: Mapping[str, Any], after_us: int) -> Iterator[Moment]:
    outcome = f", {record['outcome']}" if record.get("outcome") else ""
    spec = f"{record['decision_key']}@{record['decision_version']}"
    text = f"{record['status']}{outcome}: {spec}, record {record['record_id']}"
    yield Moment(text, after_us)
    for failure in (record.get("rationale") or {}).get("failures", ()):
        yield Moment(f"{failure['code']}: {displayed(failure['detail'])}")
    for name, value in record["outputs"].items():
        yield Moment(f"{displayed(name)}: {displayed_json(value)}")
    if card := record.get("scorecard"):
        axes = ("policy", "utility", "latency", "safety", "economics")
        yield Moment("scored " + ", ".join(f"{axis} {card[axis]['score']:g} {card[axis]['status']}" for axis in axes))
    markers = (record.get("lineage") or {}).get("unsafe", ())
    if UNSAFE_OBSERVED in markers:
        yield Moment("observed, not enforced: the pack stopped no call and asked nobody")
    if stand_ins := [marker for marker in markers if marker != UNSAFE_OBSERVED]:
        yield Moment(f"development stand-ins: {', '.join(stand_ins)}")


def _cost_lines(run: RunAccount) -> Iterator[str]:
    record, limits = _last_record(run), dict[str, Any]()
    for entry in run.of("run.context", "run.reopened"):
        if entry.body and entry.kind == "run.context":
            limits |= entry.body["run_budget"]
        elif entry.body and entry.body.get("limit"):
            limits[entry.body["limit"]] = entry.body["to"]
    if record is not None:
        usage = record["budget_usage"]
        amounts = [
            _amount_of_limit(f"{usage['tokens']}", limits.get("total_tokens"), "tokens"),
            _amount_of_limit(f"{usage['tool_calls']}", limits.get("max_tool_calls"), "tool calls"),
            _amount_of_limit(f"{usage['cost_usd_cents']:g}", limits.get("max_cost_cents"), "US cents"),
            _amount_of_limit(f"{usage['wall_clock_ms']:.1f}", limits.get("wall_clock_ms"), "ms without waiting"),
        ]
        yield ", ".join(amounts)
    for (profile, operation), costs in sorted(add_calls(run.routes.values(), {}).items()):
        calls = f"{costs.calls} calls, {costs.taken} answers taken, {sum(costs.tokens.values())} tokens"
        yield f"{displayed(profile)} for {operation}: {calls}, {cents(costs.cost_units):g} US cents"


def _replay_lines(log: Sequence[Logged], run: RunAccount) -> Iterator[str]:
    if (record := _last_record(run)) is not None:
        yield f"record hash {record['record_hash'][:19]}, {len(log)} journal entries"
        ended = log[-1].kind == "run.ended"
        run_id = record["replay"]["run_id"]
        yield f"contextos replay {run_id}" if ended else "the run has not ended; replay it when it has"


def _erased_lines(log: Sequence[Logged]) -> Iterator[str]:
    if seqs := [str(entry.seq) for entry in log if entry.body is None]:
        yield f"the content of entries {', '.join(seqs)} of {len(log)}; the chain still covers that they were there"


def _last_record(run: RunAccount, after: int = 0) -> dict[str, Any] | None:
    """Return the current decision record if it was written behind entry number `after`, or None."""
    return next((entry.body for entry in reversed(run.of("record.revised")) if entry.body and entry.seq > after), None)


def _amount_of_limit(amount: str, limit: float | None, unit: str) -> str:
    return f"{amount} {unit}" if limit is None else f"{amount} of {limit:g} {unit}"
