"""Engines and people of a simulated world: approvers, operators, auditors and those who change inputs.

An actor runs outside the processes and calls into one of them. If that process dies, the actor does not know the
outcome of its call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from contextos.audit.verify import verify_tenant
from contextos.deployment import operator
from contextos.deployment.acts.facts import write_facts
from contextos.deployment.deployment import Deployment
from contextos.errors import ApprovalRefused, Unavailable
from contextos.trust.approvals.assertion import sign_approval
from contextos.trust.approvals.settlement import sign_settlement
from contextos_sim import example
from contextos_sim.actors.callers import call_process, outcome_unknown
from contextos_sim.scheduler import immediately, pause

if TYPE_CHECKING:
    from contextos_sim.ports import Host
    from contextos_sim.world import SimulatedWorld


GOOD_APPROVERS = ("user_finance_lead_77", "user_finance_lead_78")
_OPERATOR_ID = example.OPERATOR_ID
_KNOWN_EVIDENCE = "kg:order:ord_881#snapshot_kg_1"
BAD_ANSWERS = ("self", "wrong_role", "forged", "moved")


async def engine_actor(world: SimulatedWorld, host: Host, deployment: Deployment) -> None:
    """Simulate an engine: drive due runs and send heartbeats until the process dies or the faults end."""
    while world.faults.on:
        await pause(world.rng.randint(1_000_000, 90_000_000))
        try:
            await deployment.send_heartbeats()
            due = [run async for run in deployment.ports.stores.due(host.now_us())]
        except Unavailable:
            continue
        for tenant_id, run_id in due:
            world.scheduler.spawn("advance", drive_once(deployment, tenant_id, run_id), host=host.owner)


async def drive_once(deployment: Deployment, tenant_id: str, run_id: str) -> None:
    """Drive a run once. If a port is down, the next sweep finds the run again."""
    try:
        await deployment.advance(tenant_id, run_id)
    except Unavailable:
        return


async def approvers(world: SimulatedWorld) -> None:
    """Simulate approvers: answer open questions correctly, wrongly, late, twice or in conflict; leave some
    unanswered.
    """
    known: set[str] = set()
    while True:
        await pause(world.rng.randint(1_000_000, 60_000_000))
        for run in list(world.checker.runs.values()):
            question = run.open_question
            if question is None or question in known:
                continue
            known.add(question)
            body = run.questions[question]
            if world.rng.random() < world.scenario.approvers_answer:
                world.scheduler.spawn("approver", _answer_question(world, run.run_id, body))


async def _answer_question(world: SimulatedWorld, run_id: str, question: Mapping[str, Any]) -> None:
    behaviour = world.rng.choice(("once", "once", "once", "twice", "conflicting", "late", *BAD_ANSWERS))
    verdict = world.rng.choice(("approved", "approved", "approved", "denied"))
    world.exercised[f"answers: {behaviour}"] += 1
    if behaviour == "late":
        await pause(max(question["deadline_us"] - world.scheduler.now_us, 0) + world.rng.randint(-5_000_000, 5_000_000))
    if behaviour in BAD_ANSWERS:
        await _bad_answer(world, run_id, question, behaviour)
        verdict = "approved"
    await _answer(world, run_id, question, GOOD_APPROVERS[0], verdict)
    if behaviour == "twice":
        await _answer(world, run_id, question, GOOD_APPROVERS[0], verdict)
    if behaviour == "conflicting":
        other = "denied" if verdict == "approved" else "approved"
        world.scheduler.spawn("approver", _answer(world, run_id, question, GOOD_APPROVERS[1], other))
        world.scheduler.spawn("approver", _answer(world, run_id, question, GOOD_APPROVERS[0], verdict))
    if world.scenario.inputs_change and world.rng.random() < 0.5:
        change_input(world, world.rng.choice(("roles", "evidence", "definitions", "pack")))


async def _answer(
    world: SimulatedWorld, run_id: str, question: Mapping[str, Any], approver_id: str, verdict: str
) -> None:
    def sign(statement: Mapping[str, Any]) -> Mapping[str, Any]:
        key = example.approver_key(approver_id)
        return {"kind": "jws", "token": sign_approval(key, f"key_{approver_id}", statement)}

    for _ in range(4):
        try:
            await call_process(
                world,
                "answer",
                lambda deployment: operator.answer_approval(
                    deployment,
                    example.EXAMPLE_TENANT,
                    run_id,
                    approver_id=approver_id,
                    verdict=verdict,
                    reason="seen",
                    binding_digest=question["binding_digest"],
                    vouch=sign,
                ),
            )
        except outcome_unknown(world):
            await pause(world.rng.randint(1_000, 5_000_000))
        except ApprovalRefused as refused:
            world.exercised[f"refused: {refused.reason}"] += 1
            return
        else:
            if not any(one.get("approver") == approver_id for one in world.checker.runs[run_id].answers.values()):
                world.checker.violated(
                    "acknowledged_is_durable", f"the answer of `{approver_id}` to `{run_id}` is gone"
                )
            return


async def _bad_answer(world: SimulatedWorld, run_id: str, question: Mapping[str, Any], flaw: str) -> None:
    """Give an answer that must be refused, because of `flaw`."""
    approver_id = {"self": "usr_owner_1", "wrong_role": "user_support_lead_5"}.get(flaw, GOOD_APPROVERS[1])

    def sign(statement: Mapping[str, Any]) -> Mapping[str, Any]:
        key = example.approver_key("somebody else" if flaw == "forged" else approver_id)
        # Of another question by its digest, or, half of the time, with other arguments under the same digest.
        by_digest = int(question["binding_digest"][-1], 16) % 2
        other = (
            {"binding_digest": "sha256:" + "0" * 64} if by_digest else {"args": {**statement["args"], "amount_inr": 1}}
        )
        signed = {**statement, **other} if flaw == "moved" else statement
        return {"kind": "jws", "token": sign_approval(key, f"key_{approver_id}", signed)}

    try:
        await call_process(
            world,
            "bad answer",
            lambda deployment: operator.answer_approval(
                deployment,
                example.EXAMPLE_TENANT,
                run_id,
                approver_id=approver_id,
                verdict="approved",
                reason="trust me",
                binding_digest=question["binding_digest"],
                vouch=sign,
            ),
        )
    except outcome_unknown(world, ApprovalRefused):
        return
    world.checker.violated(
        "answers_that_do_not_count", f"`{question['approval_id']}` accepted an answer with the flaw {flaw}"
    )


async def operator_actor(world: SimulatedWorld) -> None:
    """Simulate an operator: settle effects of unknown outcome, and sometimes try to settle a run that needs no
    settlement.
    """
    while True:
        await pause(world.rng.randint(5_000_000, 200_000_000))
        for run in list(world.checker.runs.values()):
            if run.unsettled and run.state == "waiting" and not run.ended:
                await settle_uncertain(world, run.run_id)
            elif world.rng.random() < 0.05:
                await _settle_without_need(world, run.run_id)


async def settle_uncertain(world: SimulatedWorld, run_id: str) -> None:
    """Settle an effect of unknown outcome as the payments service recorded it, unless a request can still arrive."""
    if world.shop.in_flight or world.zombies():
        return
    run = world.checker.runs[run_id]
    refund = run.refund
    assert refund is not None, "what is unsettled was dispatched"
    effect = world.shop.by_key(refund["envelope"].get("idempotency_key"))
    settlement = operator.SettlementInput(
        happened=effect is not None,
        by=_OPERATOR_ID,
        evidence_ref=_KNOWN_EVIDENCE,
        output=effect.output if effect else None,
        mutations=(f"refund:{effect.number}",) if effect else (),
    )
    world.exercised["settlements"] += 1
    if world.rng.random() < 0.3:
        by = world.rng.choice(("usr_771", "usr_owner_1", GOOD_APPROVERS[0], _OPERATOR_ID))
        await _settle(world, run_id, replace(settlement, by=by), key_of="somebody else" if by == _OPERATOR_ID else by)
    if world.rng.random() < 0.3:
        world.scheduler.spawn("operator", _settle(world, run_id, settlement, key_of=_OPERATOR_ID))
    await _settle(world, run_id, settlement, key_of=_OPERATOR_ID)


async def _settle(world: SimulatedWorld, run_id: str, settlement: operator.SettlementInput, *, key_of: str) -> None:
    """Settle with the key of `key_of`. Unless the operator signs with their own key, this must be refused."""

    def sign(statement: Mapping[str, Any]) -> Mapping[str, Any]:
        key = example.approver_key(key_of)
        return {"kind": "jws", "token": sign_settlement(key, f"key_{settlement.by}", statement)}

    try:
        await call_process(
            world,
            "settle",
            lambda deployment: operator.settle_effect(
                deployment, example.EXAMPLE_TENANT, run_id, settlement, vouch=sign
            ),
        )
    except outcome_unknown(world, ApprovalRefused) as refused:
        world.exercised[f"settlement refused: {getattr(refused, 'reason', 'unknown')}"] += 1
        return
    if (settlement.by, key_of) != (_OPERATOR_ID, _OPERATOR_ID):
        world.checker.violated(
            "settlements_that_do_not_count",
            f"`{run_id}` accepted a settlement of `{settlement.by}` signed by `{key_of}`",
        )


async def _settle_without_need(world: SimulatedWorld, run_id: str) -> None:
    """Try to settle a run that waited for no settlement a moment ago, with a key that is not the operator's."""
    settlement = operator.SettlementInput(happened=False, by=_OPERATOR_ID, evidence_ref=_KNOWN_EVIDENCE)
    await _settle(world, run_id, settlement, key_of="somebody else")


async def canceller(world: SimulatedWorld) -> None:
    """Simulate a user who cancels a random run at a random time, half of the time just before a call is sent."""
    if world.rng.random() < 0.5:
        await _wait_for_a_lookup(world)
    else:
        await pause(world.rng.randint(1, 300_000_000))
    running = [run for run in world.checker.runs.values() if not run.ended]
    if not running:
        return
    run_id = running[world.rng.randrange(len(running))].run_id
    try:
        await call_process(
            world,
            "cancel",
            lambda deployment: operator.request_cancel(
                deployment, example.EXAMPLE_TENANT, run_id, by=example.operator(), reason="they changed their mind"
            ),
        )
    except outcome_unknown(world, ApprovalRefused) as refused:
        world.exercised[f"cancel refused: {type(refused).__name__}"] += 1
        return
    world.exercised["cancels"] += 1
    world.cancelled[run_id] = world.scheduler.now_us


async def _wait_for_a_lookup(world: SimulatedWorld) -> None:
    """Wait until a run looks up its idempotency key, just before it dispatches."""
    lookups = world.moments["store.look"]
    for _ in range(1_000):
        if world.moments["store.look"] > lookups:
            return
        await pause(world.rng.randint(500, 5_000))


async def redundant_driver(world: SimulatedWorld) -> None:
    """Simulate a process that drives runs which another process may be driving, or which are not due."""
    for _ in range(world.rng.randint(5, 30)):
        await pause(world.rng.randint(1_000, 5_000_000))
        running = [run for run in world.checker.runs.values() if not run.ended]
        if not running:
            continue
        run_id = running[world.rng.randrange(len(running))].run_id
        try:
            await call_process(
                world, "advance", lambda deployment, run_id=run_id: deployment.advance(example.EXAMPLE_TENANT, run_id)
            )
        except outcome_unknown(world):
            continue


async def auditor(world: SimulatedWorld) -> None:
    """Simulate an auditor: verify the tenant's journal while its runs go on."""
    for _ in range(3):
        await pause(world.rng.randint(1, 60_000_000))
        try:
            await call_process(
                world,
                "audit",
                lambda deployment: verify_tenant(
                    deployment.ports.stores.tenant(example.EXAMPLE_TENANT), example.EXAMPLE_TENANT, example.keys()
                ),
            )
        except outcome_unknown(world):
            continue


async def input_changer(world: SimulatedWorld) -> None:
    """Simulate an administrator who changes something that runs depend on, at a random time."""
    await pause(world.rng.randint(1, 200_000_000))
    change_input(world, world.rng.choice(("evidence", "definitions", "pack")))


def change_input(world: SimulatedWorld, what: str) -> None:
    """Change something that an approval depends on: `roles`, `evidence`, `definitions` or `pack`."""
    now_us = world.scheduler.now_us
    world.exercised[f"changed: {what}"] += 1
    if what == "roles":
        world.people.revoke(GOOD_APPROVERS[0])
        world.changed_at_us.setdefault(GOOD_APPROVERS[0], now_us)
    elif what == "definitions":
        world.change_definitions()
        world.changed_at_us["definitions"] = now_us
    elif what == "pack":
        world.withdraw_pack()
        world.changed_at_us.setdefault("pack", now_us)
    else:
        orders = example.orders()
        customers = {orders[one.order_id].customer_id for one in world.scenario.requests if one.order_id in orders}
        customers &= world.verified
        customer = world.rng.choice(sorted(customers or world.verified))
        graph = world.stores.graph(example.EXAMPLE_TENANT)
        head = immediately(graph.head())
        edges = immediately(graph.neighbourhood([f"customer:{customer}"], at=head, hops=1, fan_out=50, limit=50))
        for edge in edges:
            if edge["predicate"] == "identity_verified":
                gone = {"retracts": edge["edge_id"], "evidence_ref": "artifact:recheck#rev_2"}
                immediately(write_facts(world.admin, example.EXAMPLE_TENANT, [], [gone], by=example.operator()))
        world.changed_at_us.setdefault(customer, now_us)
