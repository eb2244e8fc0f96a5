"""The example's refund as a model plans it, or chooses its calls, in a deployment in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from contextos.adapters.function.loading import load_function_adapters
from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.ports.models import ModelCall, ModelReply, OnText
from contextos.deployment.queries.run_view import RunView
from contextos.testing import in_memory
from contextos.workspace.application import App
from contextos.workspace.in_memory import InMemory
from tests import modelled
from tests.world import EXAMPLE, TENANT, example, request

good_plan = modelled.plan

RULES, GOOD, OTHER = "routing.support@1.0.0", "model.good@1.0.0", "model.other@1.0.0"
LOOKUP = {"tool": "adp_orders.lookup", "args": {"order_id": "ord_881"}}
CHECK = {"tool": "adp_policy.eval", "args": {"order_id": "ord_881", "amount_inr": 900}}
PAY = {"tool": "adp_payments.issue_refund", "args": {"order_id": "ord_881", "amount_inr": 900, "currency": "INR"}}
FINISH = {"tool": "finish", "args": {"outcome": "approved", "reason": "it is paid"}}


def profile(ref: str, **stated: Any) -> dict[str, Any]:
    """A profile whose model has the last part of its id as its name."""
    name, _, version = ref.partition("@")
    return modelled.profile(name.rpartition(".")[2], profile_id=name, version=version, **stated)


def rules(*refs: str, **stated: Any) -> dict[str, Any]:
    """Routing rules for plans with these profiles as candidates."""
    candidates = [{"profile": ref, "weight": int(not at)} for at, ref in enumerate(refs)]
    rule = {"rule_id": "R_plan", "operation": "judge.plan", "candidates": candidates} | stated
    return {"rules_id": "routing.support", "version": "1.0.0", "tenant": TENANT, "rules": [rule]}


def planned_pack() -> dict[str, Any]:
    """The pack of the example, with a model as the planner."""
    return modelled.pack()


def session_pack() -> dict[str, Any]:
    """The pack of the example, with a model that chooses each call."""
    return modelled.pack(chosen_by="model")


def deployed(place: Path, pack: Mapping[str, Any], models: Any, *artifacts: Mapping[str, Any], **more: Any) -> InMemory:
    """A deployment of the pack, with the shop at `place`; without `artifacts` with one profile and its rules.

    `before` are packs beside it.
    """
    loaded = load_function_adapters("shop.py:adapters", None, root=EXAMPLE, workspace=place)
    known = {"adapters": loaded.adapters, "directory": example("directory.json"), "facts": example("graph.json")}
    found = artifacts or (profile(GOOD), rules(GOOD))
    return in_memory(packs=[*more.pop("before", ()), pack], models=models, artifacts=found, **known | more)


def refund(app: App, amount: int = 900, request_id: str = "req_model") -> RunView:
    """Ask for a refund of order ord_881."""
    return app.deployment.invoke(request(amount, request_id))


def entries(app: App, run_id: str, *kinds: str) -> list[tuple[str, str, dict[str, Any]]]:
    """The entries of a run, of these kinds or all, each as kind, key and body."""
    stored = app.call(app.deployment.ports.stores.tenant(TENANT).read, run_id)
    found = [(one.kind, one.key, orjson.loads(one.body or b"{}")) for one in stored]
    return [(kind, key, body.get("answer", body)) for kind, key, body in found if not kinds or kind in kinds]


def require_sound(app: App, run_id: str) -> None:
    """The journal of a run verifies and replays without a provider, and nothing that it reserved is left open."""
    app.call(verify_tenant, app.deployment.ports.stores.tenant(TENANT), TENANT, app.keys)
    app.call(replay, app.deployment, TENANT, run_id)
    asked = {key: body for _, key, body in entries(app, run_id, "model.asked")}
    answered = {key: body for _, key, body in entries(app, run_id, "model.answered")}
    assert asked.keys() == answered.keys()
    for key, body in answered.items():
        if body.get("unpriced"):
            assert body["cost_units"] == asked[key]["reserved_units"]


class Answering:
    """A provider whose answers are what functions return, in order; the last answers all further calls."""

    unsafe = ("unsafe_scripted_models",)

    def __init__(self, *answers: Callable[[ModelCall], Any]) -> None:
        self.asked: list[ModelCall] = []
        self._answers = answers

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:
        self.asked.append(call)
        reply: ModelReply = self._answers[min(len(self.asked), len(self._answers)) - 1](call)
        return reply


def failures(view: RunView) -> Sequence[Mapping[str, Any]]:
    """Why a run did not end well."""
    found: Sequence[Mapping[str, Any]] = view.record["rationale"].get("failures", ()) if view.record else ()
    return found
