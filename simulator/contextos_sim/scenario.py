"""The scenario of a seed: its requests, payments strategy, number of processes and hostile plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from contextos_sim import example

STRATEGIES: Final = ("keyed", "keyed", "lookup", "none", "lookup_weak")
AMOUNTS: Final = (500, 1500, 2900, 3000, 3001, 3001, 4200, 4200, 4800, 9900, 150_000)
ORDERS: Final = (*("ord_881",) * 6, *("ord_895",) * 8, "ord_882", "ord_883", "ord_890", "ord_896", "ord_missing")
MODES: Final = ("stream", "stream", "batch", "long_running")
SESSIONS_MS: Final = (14_400_000, 14_400_000, 1_800_000, 60_000, 5_000)
"""Values of `max_session_duration_ms`: the default, half of the gate's timeout, and too short for any person."""
USERS: Final = (*("usr_771",) * 9, *("usr_772",) * 6, "usr_773", "usr_774")
POLICY_POINTS: Final = ("compile", "plan", "execute", "commit")
BOUND_INR: Final = 1_000
HOSTILE_PLANS: Final = (*("understated_mode",) * 3, "no_checkpoint", "unknown_tool", "other_amount", "unchecked_step")
"""Kinds of plan that a hostile planner proposes. None of them must lead to a payment."""


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """A request that a simulated client sends `times` times."""

    request_id: str
    user_id: str
    order_id: str
    amount_inr: int
    max_tool_calls: int
    at_us: int
    times: int
    mode: str = "stream"
    max_session_ms: int = SESSIONS_MS[0]

    def body(self) -> dict[str, Any]:
        """Return the request as JSON."""
        request = {**example.request(), "request_id": self.request_id}
        token = {"subject": self.user_id, "token_ref": f"tok_{self.user_id}"}
        request["user"] = {"user_id": self.user_id, "delegation": {**request["user"]["delegation"], **token}}
        known = {"order_id": self.order_id, "refund_amount": self.amount_inr, "currency": "INR"}
        known["identity_verified"] = True
        request["input"] = {**request["input"], "message": "Refund it.", "context": known}
        request["mode"] = self.mode
        limits = {"max_tool_calls": self.max_tool_calls, "max_session_duration_ms": self.max_session_ms}
        request["runtime"] = {**request["runtime"], **limits}
        return request


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """A policy of the tenant: at one point, each refund needs an approval (`gate`) or is limited in amount (`bound`).

    It is activated `at_us` microseconds after the start; 0 is before the first request.
    """

    point: str
    control: str
    at_us: int

    def bundle(self) -> dict[str, Any]:
        """Return the policy artifact (version, tenant and bundle) as JSON."""
        then = (
            {"requires_approval_gate": "GATE_FINANCE_APPROVAL"}
            if self.control == "gate"
            else {"arg_constraints": {"amount_inr": {"max": BOUND_INR}}}
        )
        rule = {
            "rule_id": "R_SIMULATED",
            "applies_to": {"point": self.point, "capability": "adp_payments.issue_refund"},
            "if": {"==": [{"var": "tenant.tenant_id"}, example.EXAMPLE_TENANT]},
            "then": {"allow": True, **then},
        }
        bundle = {"bundle_id": "POLICY_SIMULATED", "policy_dsl": {"language": "jsonlogic", "rules": [rule]}}
        return {"version": "1.0.0", "tenant": example.EXAMPLE_TENANT, "bundle": bundle}


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is decided by the seed before the simulation begins. `hostile` names the kind of forbidden plan that the
    simulated planner proposes; None for an honest planner. `by_agent`: an agent chooses the calls of each run. With
    `by_model` a model does so (`session`), or plans each run (`plan`).
    """

    strategy: str
    scope: str
    external_reads: bool
    hosts: int
    requests: tuple[PlannedRequest, ...]
    hostile: str | None
    approvers_answer: float
    inputs_change: bool
    drives_redundantly: bool
    cancels: bool
    parallel_reads: bool = False
    policy: TenantPolicy | None = None
    dear_payments: bool = False
    intruded: bool = False
    by_agent: bool = False
    by_model: str = ""


def with_agents(drawn: Scenario, rng: Random) -> Scenario:
    """Return the scenario, in one of five cases with agents that choose the calls. No planner takes part then."""
    if drawn.hostile or rng.random() >= 0.2:
        return drawn
    requests = tuple(replace(one, mode="stream") for one in drawn.requests)
    return replace(drawn, by_agent=True, parallel_reads=False, requests=requests)


def of_seed(seed: int, kind: str = "") -> Scenario:
    """Return the scenario of a seed, or with `kind` the one with a model that plans (`plan`) or that chooses the calls
    (`session`). Each kind of run has chances of its own, so that no other changes by them.
    """
    drawn = draw(Random(f"scenario {seed}"))
    if kind:
        return by_model(drawn, kind)
    return with_models(with_agents(drawn, Random(f"agents {seed}")), Random(f"models {seed}"))


def with_models(drawn: Scenario, rng: Random) -> Scenario:
    """Return the scenario, in one of eight cases with a model that plans, or that chooses the calls."""
    if drawn.hostile or drawn.by_agent or rng.random() >= 0.125:
        return drawn
    return by_model(drawn, rng.choice(("plan", "session")))


def by_model(drawn: Scenario, kind: str) -> Scenario:
    """Return the scenario with a model that plans (`plan`), or that chooses the calls (`session`)."""
    requests = tuple(replace(one, mode="stream") for one in drawn.requests)
    drawn = replace(drawn, by_model=kind, by_agent=False, hostile=None, parallel_reads=False)
    return drawn if kind == "plan" else replace(drawn, requests=requests)


def draw(rng: Random) -> Scenario:
    """Draw a scenario at random. About half of its refunds are small enough to need no approval."""
    requests: list[PlannedRequest] = []
    for number in range(rng.choice((1, 2, 2, 3, 3))):
        requests.append(_draw_request(rng, number, requests))
    drawn = Scenario(
        strategy=rng.choice(STRATEGIES),
        scope=rng.choice(("tenant", "tenant", "run")),
        external_reads=rng.random() < 0.3,
        hosts=rng.choice((1, 1, 2)),
        requests=tuple(requests),
        hostile=rng.choice(HOSTILE_PLANS) if rng.random() < 0.15 else None,
        approvers_answer=rng.choice((0.6, 1.0, 1.0)),
        inputs_change=rng.random() < 0.4,
        drives_redundantly=rng.random() < 0.3,
        cancels=rng.random() < 0.35,
    )
    modes = [(rng.choice(MODES), rng.choice(SESSIONS_MS)) for _ in requests]
    drawn = replace(
        drawn,
        parallel_reads=rng.random() < 0.5,
        requests=tuple(
            replace(one, mode=mode, max_session_ms=most) for one, (mode, most) in zip(requests, modes, strict=True)
        ),
    )
    at_us = rng.choice((0, 0, rng.randrange(60_000_000)))
    policy = TenantPolicy(rng.choice(POLICY_POINTS), rng.choice(("gate", "bound")), at_us)
    drawn = replace(drawn, policy=policy if rng.random() < 0.3 else None, dear_payments=rng.random() < 0.1)
    if rng.random() < 0.8:
        return drawn
    # A payment that needs nobody, and is asked for again.
    first = replace(drawn.requests[0], user_id="usr_771", order_id="ord_895", amount_inr=2_900, max_tool_calls=8)
    again = replace(first, request_id="req_again", at_us=rng.randrange(1_000_000, 120_000_000))
    return replace(drawn, intruded=True, hostile=None, requests=(first, *drawn.requests[1:], again))


def _draw_request(rng: Random, number: int, earlier: list[PlannedRequest]) -> PlannedRequest:
    order_id = rng.choice(ORDERS)
    amount = rng.choice(AMOUNTS)
    if earlier and rng.random() < 0.5:
        # The same effect again, by another request.
        order_id, amount = earlier[-1].order_id, earlier[-1].amount_inr
    return PlannedRequest(
        request_id=f"req_sim{number}",
        user_id=rng.choice(USERS),
        order_id=order_id,
        amount_inr=amount,
        max_tool_calls=rng.choice((3, 4, 8, 8, 8)),
        at_us=rng.randrange(5) * 400_000,
        times=rng.choice((1, 1, 2)),
    )
