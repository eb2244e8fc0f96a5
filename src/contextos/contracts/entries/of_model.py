"""The kinds of entries about calls of models: the chosen route and the reasons, the question, and the answer.

They belong to the ledger of the context: a route is never a decision of the run. The highest possible cost of a call is
reserved when the model is asked, and settled when it answers; without an answer the cost stays reserved.
Source: Runtime Architecture, "AI Gateway / LLM Router"; docs/design/models.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.entries.account import RoutedCall, RunAccount, cents
from contextos.contracts.entries.row import Aside, Because, Kind, Lines, StoryReader, picked
from contextos.contracts.envelopes.models import (
    TOKEN_KINDS,
    AskedOutcome,
    ModelRef,
    ModelWire,
    RouteReason,
    RoutingDecision,
    Tokenizer,
)
from contextos.contracts.ids import Digest
from contextos.contracts.journal import CONTEXT, Logged
from contextos.contracts.model import Count, Map, Model, Name, OpenObject, Seq, Text

MODEL_GATEWAY: Final = "action.model_gateway"
OUTCOME_TEXTS: Final[Mapping[AskedOutcome, str]] = {
    "answered": "answered",
    "truncated": "stopped at the token limit of its answer",
    "refused": "declined to answer",
    "malformed": "sent an answer that is not valid",
    "cut": "broke off its answer",
    "timed_out": "did not answer in time",
    "overloaded": "accepts no more calls now",
    "unavailable": "failed or could not be reached",
    "rejected": "refused the request as wrong",
    "too_large": "refused the prompt as too long",
    "unauthorized": "refused the key",
    "unknown_model": "is not known to its provider",
    "lost": "can have answered a process that ended before the answer was recorded",
}
"""What to tell a person about a model by the outcome of its call."""
REASON_TEXTS: Final[Mapping[RouteReason, str]] = {
    "chosen": "it meets every limit and comes first",
    "share": "the run is outside the share of this canary",
    "unknown": "its profile is not pinned by the run",
    "capability": "it lacks a capability",
    "region": "it can handle a call in a region that the rule excludes",
    "data_class": "what the call shows is classified above its limit",
    "policy": "policy refuses it",
    "health": "its circuit is open, because it failed too often in a row",
    "quota": "a limit of its calls is reached",
    "context_size": "the prompt and the answer exceed its context window",
    "cost": "its highest cost exceeds what is left",
    "latency": "too little time is left",
    "attempts": "no further call is allowed",
    "tried": "it was asked before",
    "weight": "the chosen one comes before it",
}
"""What to tell a person about a candidate by the reason of its route."""
_ALLOWED_STATES: Final = "compiled open planning executing scoring"


class UnavailableModels(Model):
    """Body of `model.unavailable`: the profiles that cannot be called now. `failed` profiles failed too often in a row,
    and the rate or the number of parallel calls of `busy` profiles is used up; both have the time when they can be
    called again (Unix microseconds). `withdrawn` profiles were withdrawn after the run was admitted. `vectors_lost`:
    the process that got the vectors of the previous attempt ended before it used them. `tokens` has the count of the
    prompt, or of each text to embed, for each profile that names a tokenizer. The tokenizer of `uncounted` profiles is
    not installed.
    """

    failed: Map[Count] = {}
    busy: Map[Count] = {}
    withdrawn: Seq[ModelRef] = ()
    vectors_lost: bool = False
    tokens: Map[Seq[Count]] = {}
    uncounted: Seq[ModelRef] = ()


class AskedModel(Model):
    """Body of `model.asked`: the question to the model of the route before, and what it can cost.

    `request_digest` is the digest of the messages, the tools and the schema, which follow from earlier entries and the
    pins. `wire` and `model` are from the profile. `input_tokens` is the estimate, and `most_input_tokens` the most that
    the prompt can have. `reserved_units` is the highest possible cost, in 1/10,000 US cent. A call that embeds has the
    number of `texts`, and its digest is of them. `tokenizer` made the estimate; absent, the estimator of the run did.
    """

    request_digest: Digest
    wire: ModelWire
    model: Name
    input_tokens: Count
    most_input_tokens: Count
    reserved_units: Count
    texts: Count = 0
    tokenizer: Tokenizer | None = None


class StatedCallOfModel(Model):
    """A call of a tool that a model proposes: its id in the answer, the tool, and the arguments."""

    call_id: Name
    tool: Name
    args: OpenObject


class BilledUsage(Model):
    """The usage that the provider says it bills, by kind, with its service tier, and its own object as it was sent."""

    counts: Map[Count]
    tier: Text = ""
    reported: OpenObject = {}


class AnsweredModel(Model):
    """Body of `model.answered`: what became of one call of a model. Its key is that of `model.asked`.

    `cost_units` is the cost in 1/10,000 US cent: by the usage that the provider reports, or the reserved cost if it
    reports no usage that has a price (`unpriced`). `retry_at_us` is when the provider can be asked again (Unix
    microseconds). `waited_us` is how long the run waited for its turn after the answer, in microseconds. `vectors` has
    the digest of each vector; the numbers of vectors are never recorded.
    """

    outcome: AskedOutcome
    cost_units: Count
    unpriced: bool = False
    text: Text = ""
    calls: Seq[StatedCallOfModel] = ()
    model: Text = ""
    reply_id: Text = ""
    usage: BilledUsage | None = None
    retry_at_us: Count = 0
    waited_us: Count = 0
    detail: Text = ""
    vectors: Seq[Digest] = ()


class JudgedAnswer(Model):
    """Body of `model.judged`: why an answer of a model was not taken; it is asked again with these findings."""

    findings: Seq[Text]


def _fold_route(account: RunAccount, entry: Logged) -> None:
    body = entry.body
    profile = body.get("profile")
    account.routes[entry.key] = RoutedCall(body["operation"], body["rules"], profile, None if profile else "no_route")


def _fold_question(account: RunAccount, entry: Logged) -> None:
    _set_cost(account, entry.key, entry.body["reserved_units"])


def _fold_answer(account: RunAccount, entry: Logged) -> None:
    body = entry.body
    # The clock can have been set forward and back during the call.
    account.waited_us += min(body.get("waited_us", 0), entry.at_us - account.now_us)
    if (call := _set_cost(account, entry.key, body["cost_units"])) is not None:
        counts: Mapping[str, int] = (body.get("usage") or {}).get("counts", {})
        call.outcome, call.is_unpriced = body["outcome"], body.get("unpriced", False)
        call.tokens = {kind: count for kind, count in counts.items() if not kind.endswith("requests")}


def _fold_judgement(account: RunAccount, entry: Logged) -> None:
    if (call := account.routes.get(entry.key)) is not None:
        call.outcome = "not_taken"


def _set_cost(account: RunAccount, key: str, cost_units: int) -> RoutedCall | None:
    """Note the cost of a call, and return its route; None if the entry of the route was erased."""
    account.cost_units[f"model/{key}"] = cost_units
    if (call := account.routes.get(key)) is not None:
        call.cost_units = cost_units
    return call


def _route_lines(entry: Logged, _: StoryReader) -> Lines:
    body = entry.body
    operation, rule = body["operation"], _rule_text(body)
    if (profile := body.get("profile")) is not None:
        yield f"{displayed(profile)} is asked for {operation}, by {rule}"
    else:
        yield f"no model can be asked for {operation}, by {rule}"
    for candidate in body.get("candidates", ()):
        if candidate["reason"] != "chosen":
            yield Aside(f"passed over {displayed(candidate['profile'])}: {_reason_text(candidate)}")


def _route_reasons(entry: Logged) -> Because:
    body = entry.body
    operation = body["operation"]
    if not body.get("candidates"):
        yield "model", None, f"no model was asked for {operation}: {_rule_text(body)}"
    for candidate in body.get("candidates", ()):
        outcome = "was asked" if candidate["reason"] == "chosen" else "was not asked"
        rule = f" ({_rule_text(body)})" if candidate["reason"] == "chosen" else ""
        profile, reason = displayed(candidate["profile"]), _reason_text(candidate)
        yield "model", None, f"`{profile}` {outcome} for {operation}: {reason}{rule}"


def _rule_text(body: Mapping[str, Any]) -> str:
    rules = displayed(body["rules"])
    rule = body.get("rule_id")
    return f"no rule of {rules}" if rule is None else f"rule {displayed(rule)} of {rules}"


def _reason_text(candidate: Mapping[str, Any]) -> str:
    text = REASON_TEXTS[candidate["reason"]]
    return f"{text} ({displayed(candidate['detail'])})" if candidate.get("detail") else text


def _answer_lines(entry: Logged, reader: StoryReader) -> Lines:
    call = reader.run.routes.get(entry.key)
    model = displayed(call.profile) if call is not None and call.profile else "the model"
    yield f"{model} {_answer_text(entry.body)}"


def _answer_reasons(entry: Logged) -> Because:
    yield "model", None, f"the model {_answer_text(entry.body)}"


def _answer_text(body: Mapping[str, Any]) -> str:
    detail = f" ({displayed(body['detail'])})" if body.get("detail") else ""
    counts = (body.get("usage") or {}).get("counts", {})
    tokens = [f"{counts[kind]} {kind.replace('_', ' ')}" for kind in TOKEN_KINDS if counts.get(kind)]
    reserved = ", which is what was reserved" if body.get("unpriced") else ""
    vectors = [f"{len(body['vectors'])} vectors"] if body.get("vectors") else []
    parts = [*vectors, *tokens, f"{cents(body['cost_units']):g} US cents{reserved}"]
    return f"{OUTCOME_TEXTS[body['outcome']]}{detail}: {', '.join(parts)}"


def _judgement_lines(entry: Logged, _: StoryReader) -> Lines:
    yield f"its answer was not taken: {'; '.join(map(displayed, entry.body['findings']))}"


def _judgement_reasons(entry: Logged) -> Because:
    yield "model", None, f"the answer was not taken: {'; '.join(map(displayed, entry.body['findings']))}"


def _route_fields(body: Mapping[str, Any]) -> Mapping[str, Any]:
    fields = ("operation", "profile", "rules", "rule_id", "reserved_units")
    return {
        **picked(*fields)(body),
        "candidates": [picked("profile", "reason", "detail")(candidate) for candidate in body.get("candidates", ())],
    }


def _answer_fields(body: Mapping[str, Any]) -> Mapping[str, Any]:
    counts = (body.get("usage") or {}).get("counts")
    fields = picked("outcome", "model", "cost_units", "unpriced")(body)
    return {**fields, "usage": counts} if counts else fields


def _answer_log_fields(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"model.outcome": body["outcome"], **picked("model")(body)}


_derived = partial(Kind, CONTEXT, component=MODEL_GATEWAY)

MODEL_KINDS: Final[dict[str, Kind]] = {
    "model.unavailable": _derived(
        UnavailableModels, _ALLOWED_STATES, recorded=True, told=picked("failed", "busy", "withdrawn")
    ),
    "model.routed": _derived(
        RoutingDecision,
        _ALLOWED_STATES,
        fold=_fold_route,
        told=_route_fields,
        story={"knew": _route_lines},
        why=_route_reasons,
        graded=lambda body: None if body.get("profile") else "warn",
        noted=lambda body: {"model.operation": body["operation"], "model.rules": body["rules"]},
    ),
    "model.asked": _derived(AskedModel, _ALLOWED_STATES, fold=_fold_question, told=picked("input_tokens")),
    "model.answered": _derived(
        AnsweredModel,
        _ALLOWED_STATES,
        recorded=True,
        fold=_fold_answer,
        told=_answer_fields,
        story={"knew": _answer_lines},
        why=_answer_reasons,
        graded=lambda body: None if body["outcome"] == "answered" else "warn",
        noted=_answer_log_fields,
    ),
    "model.judged": _derived(
        JudgedAnswer,
        _ALLOWED_STATES,
        severity="warn",
        fold=_fold_judgement,
        told=picked("findings"),
        story={"knew": _judgement_lines},
        why=_judgement_reasons,
    ),
}
