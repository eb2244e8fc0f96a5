"""The example of refunds with a model in it: profiles, routing rules, a pack that names them, and a script."""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from contextos.action.breaker import CircuitBreakers
from contextos.action.models.router import RouteQuestion
from contextos.action.models.sending import ModelSender
from contextos.adapters.function.loading import load_function_adapters
from contextos.adapters.models.scripted import ScriptedModels
from contextos.audit.replay import ReplayResult, replay
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import Entry
from contextos.contracts.ports.outside import Clock
from contextos.control.artifacts import PROFILE_TYPE, ROUTING_TYPE
from contextos.deployment.queries.run_view import RunView
from contextos.testing import MovableClock, Person, in_memory
from contextos.trust.seal import seal
from contextos.workspace import open_unchecked
from contextos.workspace.application import App
from contextos.workspace.engine.concurrency import AsyncioConcurrency
from contextos.workspace.settings import Settings
from tests.world import APPROVER, EXAMPLE, TENANT, example, request

PROFILE = "model.large@1.0.0"
RULES = "routing.support@1.0.0"
QUESTION = RouteQuestion(
    run_id="run_1",
    operation="judge.plan",
    intent="refund",
    risk_class="delegated",
    data_class="INTERNAL",
    input_tokens=100,
    most_input_tokens=150,
    units_left=10_000,
    time_left_ms=30_000,
)

TOOLS = ("adp_orders.lookup", "adp_policy.eval", "adp_payments.issue_refund")


def profile(name: str = "large", **of: Any) -> dict[str, Any]:
    """A profile `model.<name>@1.0.0` of the wire `scripted`: 3 and 15 dollars for a million tokens."""
    return {
        "profile_id": f"model.{name}",
        "version": "1.0.0",
        "tenant": TENANT,
        "wire": "scripted",
        "model": name,
        "capabilities": ["structured_output", "tool_calls"],
        "context_window": 200_000,
        "max_output_tokens": 2_000,
        "regions": ["eu"],
        "data_class": "RESTRICTED",
        "retention": "none",
        "prices": {"currency": "USD", "as_of": "2026-11-01", "prices": {"input": "3", "output": "15"}},
    } | of


def embedder(name: str = "vectors", **of: Any) -> dict[str, Any]:
    """A profile `model.<name>@1.0.0` that makes vectors of three numbers: 1 dollar for a million tokens."""
    prices = {"currency": "USD", "as_of": "2026-11-01", "prices": {"input": "1"}}
    embeds = {"capabilities": ["embeddings"], "dimensions": 3, "max_output_tokens": 0, "prices": prices}
    return profile(name, **embeds | of)


def rules(
    *of: Mapping[str, Any], operation: str = "judge.plan", profiles: Sequence[str] = (PROFILE,)
) -> dict[str, Any]:
    """Routing rules `routing.support@1.0.0`; by default one rule for one operation."""
    listed = of or ({"operation": operation, "candidates": [{"profile": one} for one in profiles]},)
    named = [{"rule_id": f"R_{number}", **one} for number, one in enumerate(listed)]
    return {"rules_id": "routing.support", "version": "1.0.0", "tenant": TENANT, "rules": named}


def pack(*operations: str, chosen_by: str = "template", fragment: str = "") -> dict[str, Any]:
    """The pack of refunds whose runs ask models for these operations, by default `judge.plan`."""
    made: dict[str, Any] = copy.deepcopy(example("pack.json"))
    uses = [
        {"operation": one, "rules": RULES, "prompt_fragment": fragment or ("" if one == "judge.plan" else "Be strict.")}
        for one in operations or ("judge.plan",)
    ]
    made["decision_layer"]["models"] = uses
    if chosen_by == "model":
        template = made["decision_layer"]["task_templates"][0]
        template |= {"chosen_by": "model", "outputs": {}, "memory": [], "subjects": template["subjects"][:1]}
        template["decision_checkpoints"] = [{"decision_id": "support.refund.execute"}]
        for step in template["steps"]:
            step.pop("params", None)
            step.pop("depends_on", None)
    return made


def plan(**of: Any) -> dict[str, Any]:
    """The plan of the example's template, as a model states it."""
    template = example("pack.json")["decision_layer"]["task_templates"][0]
    steps = [{name: one for name, one in step.items() if name != "approval_mode"} for step in template["steps"]]
    return {
        "template_id": f"{template['template_id']}@{template['version']}",
        "steps": steps,
        "decision_checkpoints": template["decision_checkpoints"],
    } | of


def calls(*of: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    """An answer that calls these tools."""
    return {"calls": [{"tool": tool, "args": args} for tool, args in of]}


def finish(outcome: str = "approved", reason: str = "done") -> dict[str, Any]:
    """An answer that ends the session."""
    return calls(("finish", {"outcome": outcome, "reason": reason}))


LOOKUP = ("adp_orders.lookup", {"order_id": "ord_881"})
EVALUATE = ("adp_policy.eval", {"order_id": "ord_881", "amount_inr": 900})
REFUND = ("adp_payments.issue_refund", {"order_id": "ord_881", "amount_inr": 900, "currency": "INR"})


OF_THREE = (
    profile("first"),
    profile("spare"),
    profile("open", data_class="PUBLIC"),
    rules(
        {
            "operation": "judge.plan",
            "candidates": [{"profile": "model.first@1.0.0"}, {"profile": "model.spare@1.0.0", "weight": 0}],
            "canary": {"profile": "model.open@1.0.0", "share": 1},
        }
    ),
)
FALLING_BACK: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "first": [{"outcome": "overloaded", "usage": None, "billed": False}, {"text": plan()}],
    "spare": [{"text": "sorry, no"}],
}
"""Of the three profiles the first is overloaded, the spare one answers no plan, and then the first one answers a plan.
The third, a canary of every run, is not allowed to see what the call shows.
"""


@dataclass
class Modelled:
    """A deployment in memory whose models answer from a script."""

    app: App
    models: ScriptedModels
    clock: MovableClock

    def run(self, amount: int = 900, name: str = "req_1", **of: Any) -> RunView:
        return self.app.deployment.invoke(request(amount, name, **of))

    def approve(self, view: RunView, verdict: str = "approved") -> RunView:
        return self.app.call(Person(APPROVER).answer, self.app, view, verdict)

    def replay(self, view: RunView) -> ReplayResult:
        return self.app.call(replay, self.app.deployment, TENANT, view.run_id)

    def journal(self, view: RunView) -> Sequence[Entry]:
        return self.app.call(self.app.deployment.ports.stores.tenant(TENANT).read, view.run_id)

    def entries(self, view: RunView, *kinds: str) -> list[Any]:
        """The bodies of the entries of these kinds; of a recorded one the answer."""
        bodies = [json.loads(one.body or b"null") for one in self.journal(view) if one.kind in kinds]
        return [one.get("answer", one) for one in bodies]


@contextmanager
def modelled(
    *answers: Mapping[str, Any],
    of: Mapping[str, Any] | None = None,
    artifacts: Sequence[Mapping[str, Any]] | None = None,
    script: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    models: Any = None,
    **world: Any,
) -> Iterator[Modelled]:
    """A deployment in memory with the refund pack `of`, whose model `large` gives these answers in order."""
    with TemporaryDirectory() as path:
        loaded = load_function_adapters("shop.py:adapters", None, root=EXAMPLE, workspace=Path(path))
        scripted = models if models is not None else ScriptedModels(script or {"large": answers})
        clock = MovableClock()
        given = {
            "packs": [of or pack()],
            "adapters": loaded.adapters,
            "directory": example("directory.json"),
            "facts": example("graph.json"),
            "artifacts": [profile(), rules()] if artifacts is None else artifacts,
        } | world
        with in_memory(models=scripted, clock=clock, **given) as app:
            yield Modelled(app, scripted, clock)


def sender(clock: Clock, script: Mapping[str, Sequence[Mapping[str, Any]]]) -> ModelSender:
    """What sends the calls of a process to these scripted models."""

    async def pause(_duration_us: int) -> None: ...

    def no_key(name: str) -> str:
        raise AssertionError(f"a scripted model has no key `{name}`")

    breakers = CircuitBreakers(AdmissionLimits(), threading.Lock())
    return ModelSender({"scripted": ScriptedModels(script)}, no_key, clock, breakers, AsyncioConcurrency(), pause)


def sealed_models(workspace: Path, name: str = "large") -> list[Path]:
    """Write a profile and rules that name it into a workspace, each in an envelope that its key signed."""
    app = asyncio.run(open_unchecked(Settings.read(workspace)))
    found = (
        (PROFILE_TYPE, "model.json", profile(name)),
        (ROUTING_TYPE, "routing.json", rules(profiles=(f"model.{name}@1.0.0",))),
    )
    paths = []
    for kind, file, body in found:
        paths.append(workspace / file)
        paths[-1].write_text(json.dumps(seal(kind, canonical(body), app.keys, "pack")), "utf-8")
    app.close()
    return paths
