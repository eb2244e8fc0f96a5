"""Callers of a simulated world: clients that send a request, and agents that choose the calls of a session.

Each says the same again until it is answered, in whatever process answers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

from contextos.contracts.envelopes.identity import AgentIdentity, UserClaims
from contextos.contracts.envelopes.run import RuntimeHints
from contextos.contracts.envelopes.verdicts import SessionOutcome
from contextos.contracts.ports.gates import CallAnswer, Done, Refused, Waiting
from contextos.deployment.deployment import Deployment
from contextos.deployment.gate.gate import Gate
from contextos.deployment.gate.opening import open_session
from contextos.deployment.queries.run_view import RunView
from contextos.errors import Conflict, ConflictingRequest, ContextOSError, Integrity, InvalidInput, Unavailable
from contextos_sim import example
from contextos_sim.scenario import PlannedRequest
from contextos_sim.scheduler import HostDown, TaskCoroutine, join, pause

if TYPE_CHECKING:
    from contextos_sim.world import SimulatedWorld


async def client(world: SimulatedWorld, planned: PlannedRequest) -> None:
    """Simulate a client: send a request until it is answered, and check that every answer names the same run."""
    await pause(world.rng.randint(1, 2_000_000))
    while True:
        try:
            view = await call_process(world, "invoke", lambda deployment: deployment.invoke(planned.body()))
        except outcome_unknown(world):
            await pause(world.rng.randint(1_000, 40_000_000))
            continue
        except ConflictingRequest:
            if planned.request_id not in world.contested:
                raise
            return
        first_run_id = world.answers.setdefault(planned.request_id, view.run_id)
        if first_run_id != view.run_id:
            world.checker.violated(
                "one_run_per_request", f"`{planned.request_id}` is `{first_run_id}` and `{view.run_id}`"
            )
        if view.ended:
            world.ended_as.setdefault(view.run_id, view.record["record_hash"] if view.record else "none")
        return


async def agent(world: SimulatedWorld, planned: PlannedRequest) -> None:
    """Simulate an agent that refunds in a session of its own: it says the same again, in whatever process answers,
    until its session has ended. Some do not come back for an answer of a person.
    """
    await pause(world.rng.randint(1, 2_000_000))
    order: dict[str, Any] = {"order_id": planned.order_id}
    amount: dict[str, Any] = {**order, "amount_inr": planned.amount_inr}
    calls = [
        ("adp_orders.lookup", order, "look"),
        ("adp_policy.eval", amount, "check"),
        ("adp_payments.issue_refund", {**amount, "currency": "INR"}, "pay"),
    ]
    answers: dict[str, Done | Refused] = {}
    while True:
        try:
            for tool, args, call_id in calls:
                if call_id in answers:
                    continue
                said = await call_process(world, "call", partial(_say, planned, tool, args, call_id))
                if isinstance(said, Waiting) and not world.faults.on:
                    # It does not come back, and the session ends at its deadline.
                    return
                if isinstance(said, Waiting):
                    raise Unavailable("person", "nobody has answered yet")
                answers[call_id] = said
            paid = isinstance(answers["pay"], Done) and answers["pay"].error is None
            again = await call_process(world, "call", partial(_say, planned, *calls[0]))
            if _recorded(again) != _recorded(answers["look"]):
                detail = f"`{planned.request_id}` was answered {answers['look']} and then {again}"
                world.checker.violated("same_call_same_answer", detail)
            outcome = _stated(world.seed, planned.request_id, "approved" if paid else "escalated")
            await call_process(world, "finish", partial(_finish, planned, outcome))
            world.exercised["sessions finished by agents"] += 1
            return
        except InvalidInput:
            # The session was refused when it was opened, or waits for an answer about a call.
            run_id = world.answers.get(planned.request_id)
            if run_id is None or world.checker.runs[run_id].ended:
                return
            await pause(world.rng.randint(1_000, 40_000_000))
        except outcome_unknown(world):
            await pause(world.rng.randint(1_000, 40_000_000))


def _stated(seed: int, request_id: str, outcome: SessionOutcome) -> SessionOutcome:
    """How an agent says that its session ends: some lie. It draws nothing, so that seeds stay the worlds they are."""
    lies: dict[int, SessionOutcome] = {0: "denied", 1: "approved"}
    return lies.get(crc32(f"{seed}/{request_id}".encode()) % 5, outcome)


def _recorded(answer: CallAnswer) -> CallAnswer:
    """What is on record of an answer. Another caller can finish the session between two of them."""
    return replace(answer, ended=False) if isinstance(answer, Refused) else answer


async def _gate(planned: PlannedRequest, deployment: Deployment) -> Gate:
    body = planned.body()
    return await open_session(
        deployment,
        example.EXAMPLE_TENANT,
        planned.request_id,
        user=UserClaims.model_validate(body["user"]),
        agent=AgentIdentity.model_validate(body["agent"]),
        message=body["input"]["message"],
        context=body["input"]["context"],
        hints=RuntimeHints.model_validate(body["runtime"]),
    )


async def _say(planned: PlannedRequest, tool: str, args: dict[str, Any], call_id: str, to: Deployment) -> CallAnswer:
    return await (await _gate(planned, to)).call(tool, args, call_id=call_id)


async def _finish(planned: PlannedRequest, outcome: SessionOutcome, to: Deployment) -> RunView:
    return await (await _gate(planned, to)).finish(outcome)


async def conflicting_client(world: SimulatedWorld, planned: PlannedRequest) -> None:
    """Simulate a client that reuses a request id with another body. It must be refused, unless it arrives first."""
    world.contested.add(planned.request_id)
    body = planned.body()
    body["input"] = {**body["input"], "message": "Refund it to me."}
    try:
        view = await call_process(world, "invoke", lambda deployment: deployment.invoke(body))
    except ContextOSError:
        return
    if world.answers.get(planned.request_id) == view.run_id:
        world.checker.violated("one_run_per_request", f"`{planned.request_id}` with another body gave the same run")


def outcome_unknown(world: SimulatedWorld, *more: type[ContextOSError]) -> tuple[type[ContextOSError], ...]:
    """Errors after which the caller does not know the outcome and tries again, and `more`."""
    return (Unavailable, HostDown, Conflict, *((Integrity,) if world.intruded else ()), *more)


async def call_process(world: SimulatedWorld, name: str, call: Any) -> Any:
    """Make a call in a running process, chosen at random. Raises what the call raises, or `HostDown`."""
    while not world.up():
        await pause(1_000_000)
    up = world.up()
    host, deployment = up[world.rng.randrange(len(up))]
    drive: TaskCoroutine = call(deployment)
    return await join(world.scheduler.spawn(name, drive, host=host.owner))
