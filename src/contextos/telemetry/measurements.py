"""The metrics of a run, computed from its journal entries when it has ended, and the instruments that they need.

Every measurement names its tenant. Its other attributes come from published artifacts or from closed sets, so their
number is bounded by what an operator published and not by what a caller sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from contextos.contracts.entries.account import cents
from contextos.contracts.envelopes.models import DEFAULT_TOKENIZER, TOKENIZER_ERRORS
from contextos.contracts.journal import Logged
from contextos.telemetry import genai
from contextos.telemetry.ended_run import EndedRunEntries, Value, error_type, identifiers
from contextos.telemetry.events import AXES

NONE: Final = "none"
"""The value of an attribute that a run does not have, such as the intent of a refused one."""

_USAGE: Final = ("wall_clock_ms", "tokens", "cost_usd_cents")
_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ANSWER_SECONDS: Final = (*_SECONDS, 120, 300, 600)
_WAIT_SECONDS: Final = (1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400, 604_800)


class Instrument(NamedTuple):
    """How a metric is recorded. `bounds` are the upper bounds of a histogram's buckets, in `unit`."""

    kind: Literal["counter", "histogram"]
    unit: str
    description: str
    bounds: Sequence[float] = ()


INSTRUMENTS: Final[dict[str, Instrument]] = {
    "contextos.run.duration": Instrument("histogram", "s", "runs that ended, by the time that they worked", _SECONDS),
    "contextos.run.tokens": Instrument("counter", "{token}", "tokens of the prompts of runs"),
    "contextos.run.cost": Instrument("counter", "{cent}", "cost of the calls of runs, in US cents"),
    "contextos.routes": Instrument("counter", "{run}", "runs by the pack, the task template and the planner"),
    "contextos.tool.duration": Instrument("histogram", "s", "calls that were sent, by their duration", _SECONDS),
    "contextos.tool.refusals": Instrument("counter", "{call}", "calls that were refused, so that nothing was sent"),
    "contextos.model.duration": Instrument("histogram", "s", "calls of models, by their duration", _ANSWER_SECONDS),
    "contextos.model.tokens": Instrument("counter", "{token}", "tokens that models billed, by kind"),
    "contextos.model.cost": Instrument("counter", "{cent}", "cost of the calls of models, in US cents"),
    "contextos.model.drift": Instrument(
        "counter", "{call}", "calls whose billed prompt was further off its estimate than that states"
    ),
    "contextos.approval.wait": Instrument("histogram", "s", "time from a question to its answer", _WAIT_SECONDS),
    "contextos.scores": Instrument("counter", "{score}", "scores of runs that passed or failed"),
    "contextos.score.points": Instrument("counter", "1", "the sum of these scores, each from 0 to 1 (best)"),
    "contextos.replays": Instrument("counter", "{replay}", "replays by result: equal or different"),
    "contextos.telemetry.dropped": Instrument("counter", "{run}", "ended runs that no other metric counts"),
}
"""Every metric, by its name in OpenTelemetry."""


class Measurement(NamedTuple):
    """One value of an instrument, in its unit."""

    name: str
    value: float
    attributes: dict[str, Value]


def run_measurements(run: EndedRunEntries) -> Iterator[Measurement]:
    """Yield the measurements of a run."""
    base = {"contextos.tenant_id": run.tenant_id}
    intent = {**base, "contextos.intent": run.first("intent.resolved").get("intent_id", NONE)}
    end = {**intent, "contextos.end": run.end}
    if usage := run.record.get("budget_usage"):
        # The record states what the whole run used. Use before an earlier end of the run was measured then.
        new_usage = {name: max(0, usage[name] - run.spent_before.get(name, 0)) for name in _USAGE}
        yield Measurement("contextos.run.duration", new_usage["wall_clock_ms"] / 1_000, end)
        yield Measurement("contextos.run.tokens", new_usage["tokens"], intent)
        yield Measurement("contextos.run.cost", new_usage["cost_usd_cents"], intent)
    if plan := run.first("plan.proposed"):
        yield Measurement("contextos.routes", 1, {**intent, **_route(run, plan)})
    yield from (item._replace(attributes={**base, **identifiers(item.attributes)}) for item in _tool_calls(run))
    yield from (item._replace(attributes={**base, **identifiers(item.attributes)}) for item in _model_calls(run))
    yield from (item._replace(attributes={**base, **identifiers(item.attributes)}) for item in _approvals(run))
    for card in run.of("run.scored"):
        for axis in AXES:
            labels: dict[str, Value] = {genai.EVALUATION_NAME: axis, genai.EVALUATION_LABEL: card.body[axis]["status"]}
            yield Measurement("contextos.scores", 1, {**intent, **labels})
            yield Measurement("contextos.score.points", card.body[axis]["score"], {**intent, **labels})


def add_up(measurements: Iterable[Measurement]) -> Iterator[Measurement]:
    """Yield the measurements, with the values of each counter with equal attributes added up: recording one value costs
    as much as ten additions.
    """
    sums: dict[tuple[str, frozenset[tuple[str, Value]]], Measurement] = {}
    for measurement in measurements:
        if INSTRUMENTS[measurement.name].kind == "histogram":
            yield measurement
            continue
        key = (measurement.name, frozenset(measurement.attributes.items()))
        total = sums.get(key)
        sums[key] = measurement if total is None else total._replace(value=total.value + measurement.value)
    yield from sums.values()


def replay_measurement(tenant_id: str, *, equal: bool) -> Measurement:
    """Return the measurement of one replay. The pass rate is the share of `equal`."""
    result = "equal" if equal else "different"
    return Measurement("contextos.replays", 1, {"contextos.tenant_id": tenant_id, "contextos.result": result})


def dropped_measurement(tenant_id: str, count: int) -> Measurement:
    """Return the measurement of runs that ended and were not read, because too many waited."""
    return Measurement("contextos.telemetry.dropped", count, {"contextos.tenant_id": tenant_id})


def _route(run: EndedRunEntries, plan: Mapping[str, Any]) -> dict[str, Value]:
    templates = run.first("intent.resolved").get("templates", ())
    route = {
        "contextos.context_pack_ref": run.first("run.pinned").get("pack_ref"),
        "contextos.task_template": templates[0] if templates else NONE,
        "contextos.planner": plan.get("planner"),
    }
    return identifiers(route)


def _tool_calls(run: EndedRunEntries) -> Iterator[Measurement]:
    dispatches: dict[str, Logged] = {}
    for entry in run.of("tool.dispatching", "tool.returned", "tool.refused"):
        if entry.kind == "tool.dispatching":
            dispatches[entry.key] = entry
            continue
        envelope = entry.body["envelope"]
        labels: dict[str, Value] = {genai.TOOL_NAME: envelope["capability_id"]}
        if (error := envelope.get("error") or envelope.get("withheld")) is not None:
            labels[genai.ERROR_TYPE] = error_type(error.get("code"))
        if entry.kind == "tool.refused" and envelope["metadata"].get("made_by"):
            continue  # it was done before
        if entry.kind == "tool.refused":
            yield Measurement("contextos.tool.refusals", 1, labels)
        elif (dispatch := dispatches.get(entry.key)) is not None:
            labels["contextos.action.outcome"] = entry.body["outcome"]
            seconds = (entry.at_us - dispatch.at_us - entry.body.get("waited_us", 0)) / 1e6
            yield Measurement("contextos.tool.duration", max(0.0, seconds), labels)


def _model_calls(run: EndedRunEntries) -> Iterator[Measurement]:
    questions = {entry.key: entry for entry in run.of("model.asked")}
    judged_keys = {entry.key for entry in run.of("model.judged")}
    for entry in run.of("model.answered"):
        call, question = run.account.routes.get(entry.key), questions.get(entry.key)
        if call is None or call.profile is None or question is None:
            continue  # its entries were erased
        model: dict[str, Value] = {"contextos.model.profile": call.profile, "contextos.model.operation": call.operation}
        outcome = "not_taken" if entry.key in judged_keys else entry.body["outcome"]
        seconds = max(0.0, (entry.at_us - question.at_us - entry.body.get("waited_us", 0)) / 1e6)
        yield Measurement("contextos.model.duration", seconds, {**model, "contextos.model.outcome": outcome})
        yield Measurement("contextos.model.cost", cents(call.cost_units), model)
        for kind, count in call.tokens.items():
            yield Measurement("contextos.model.tokens", count, {**model, "contextos.model.token_kind": kind})
        billed, estimate = sum(call.tokens.get(kind, 0) for kind in genai.PROMPT_KINDS), question.body["input_tokens"]
        tolerance = TOKENIZER_ERRORS[question.body.get("tokenizer") or DEFAULT_TOKENIZER]
        if billed and abs(billed - estimate) > tolerance * estimate:
            direction = "more" if billed > estimate else "fewer"
            profile = {"contextos.model.profile": call.profile}
            yield Measurement("contextos.model.drift", 1, {**profile, "contextos.model.billed": direction})


def _approvals(run: EndedRunEntries) -> Iterator[Measurement]:
    questions: dict[str, Logged] = {}
    void = run.account.void_answers()
    for entry in run.of("approval.asked", "approval.answered", "approval.expired"):
        if entry.kind == "approval.asked":
            questions[entry.key] = entry
        elif (question := questions.pop(entry.key, None)) is not None:
            verdict = entry.body["verdict"] if entry.kind == "approval.answered" else "expired"
            verdict = "void" if entry.seq in void else verdict
            labels: dict[str, Value] = {"contextos.gate_id": question.body["gate_id"], "contextos.verdict": verdict}
            yield Measurement("contextos.approval.wait", (entry.at_us - question.at_us) / 1e6, labels)
