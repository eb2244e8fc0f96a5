"""Who acts in a simulated world: clients, engines, approvers, operators, and those who change things meanwhile.

All live outside the processes and call into one of them; when it dies they know nothing of what became of their call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from contextos.audit.verify import verify_tenant
from contextos.errors import ApprovalRefused, Conflict, ConflictingRequest, ContextOSError, Unavailable
from contextos.operations import operator
from contextos.operations.deployment import Deployment
from contextos.sim import example
from contextos.sim.scenario import Asked
from contextos.sim.scheduler import HostDown, TaskCoroutine, immediately, join, pause
from contextos.trust.approvals.assertion import sign_approval
from contextos.trust.approvals.settlement import sign_settlement

if TYPE_CHECKING:
    from contextos.sim.ports import Host
    from contextos.sim.world import SimulatedWorld

UNKNOWN = (Unavailable, HostDown, Conflict)
"""After one of these a caller does not know, and asks again."""

GOOD_APPROVERS = ("user_finance_lead_77", "user_finance_lead_78")
OPERATOR_ID = "user_operator_5"
BAD_ANSWERS = ("self", "wrong_role", "forged", "moved")


async def engine_actor(world: SimulatedWorld, host: Host, deployment: Deployment) -> None:
    """Drives what is due and beats for it, again and again, as long as its process lives and the weather is bad."""
    while world.faults.on:
        await pause(world.chance.randint(1_000_000, 90_000_000))
        try:
            await deployment.send_heartbeats()
            due = [run async for run in deployment.ports.stores.due(host.now_us())]
        except Unavailable:
            continue
        for tenant_id, run_id in due:
            world.scheduler.spawn("advance", drive_once(deployment, tenant_id, run_id), host=host.owner)


async def drive_once(deployment: Deployment, tenant_id: str, run_id: str) -> None:
    """One drive; one that cannot go on now is found again by the next sweep."""
    try:
        await deployment.advance(tenant_id, run_id)
    except Unavailable:
        return


async def client(world: SimulatedWorld, asked: Asked) -> None:
    """Sends a request until it has an answer. What was answered must be so."""
    await pause(world.chance.randint(1, 2_000_000))
    while True:
        try:
            view = await call_process(world, "invoke", lambda deployment: deployment.invoke(asked.body()))
        except UNKNOWN:
            await pause(world.chance.randint(1_000, 40_000_000))
            continue
        except ConflictingRequest:
            if asked.request_id not in world.contested:
                raise
            return
        known = world.answers.setdefault(asked.request_id, view.run_id)
        if known != view.run_id:
            world.judge.violated("one_run_per_request", f"`{asked.request_id}` is `{known}` and `{view.run_id}`")
        if view.ended:
            world.ended_as.setdefault(view.run_id, view.record["record_hash"] if view.record else "none")
        return


async def impostor(world: SimulatedWorld, asked: Asked) -> None:
    """Uses somebody's request id for another body, which must be refused or, if it comes first, win alone."""
    world.contested.add(asked.request_id)
    body = asked.body()
    body["input"] = {**body["input"], "message": "Refund it to me."}
    try:
        view = await call_process(world, "invoke", lambda deployment: deployment.invoke(body))
    except (*UNKNOWN, ContextOSError):
        return
    if world.answers.get(asked.request_id) == view.run_id:
        world.judge.violated("one_run_per_request", f"`{asked.request_id}` with another body gave the same run")


async def call_process(world: SimulatedWorld, name: str, call: Any) -> Any:
    """Call into some process that is up. Raises what the call raises, or `HostDown`."""
    while not world.up():
        await pause(1_000_000)
    up = world.up()
    host, deployment = up[world.chance.randrange(len(up))]
    drive: TaskCoroutine = call(deployment)
    return await join(world.scheduler.spawn(name, drive, host=host.owner))


async def approvers(world: SimulatedWorld) -> None:
    """Answer open questions: rightly, wrongly, late, twice, against each other, or not at all."""
    known: set[str] = set()
    while True:
        await pause(world.chance.randint(1_000_000, 60_000_000))
        for seen in list(world.judge.runs.values()):
            question = seen.open_question
            if question is None or question in known:
                continue
            known.add(question)
            asked = seen.asked[question]
            if world.chance.random() < world.scenario.approvers_answer:
                world.scheduler.spawn("approver", _answer_somehow(world, seen.run_id, asked))


async def _answer_somehow(world: SimulatedWorld, run_id: str, asked: Mapping[str, Any]) -> None:
    manner = world.chance.choice(("once", "once", "once", "twice", "conflicting", "late", *BAD_ANSWERS))
    verdict = world.chance.choice(("approved", "approved", "approved", "denied"))
    world.exercised[f"answers: {manner}"] += 1
    if manner == "late":
        await pause(max(asked["deadline_us"] - world.scheduler.now_us, 0) + world.chance.randint(-5_000_000, 5_000_000))
    if manner in BAD_ANSWERS:
        await _bad_answer(world, run_id, asked, manner)
        verdict = "approved"
    await _answer(world, run_id, GOOD_APPROVERS[0], verdict)
    if manner == "twice":
        await _answer(world, run_id, GOOD_APPROVERS[0], verdict)
    if manner == "conflicting":
        other = "denied" if verdict == "approved" else "approved"
        world.scheduler.spawn("approver", _answer(world, run_id, GOOD_APPROVERS[1], other))
        world.scheduler.spawn("approver", _answer(world, run_id, GOOD_APPROVERS[0], verdict))
    if world.scenario.meddling and world.chance.random() < 0.5:
        meddle(world, world.chance.choice(("roles", "evidence", "definitions", "pack")))


async def _answer(world: SimulatedWorld, run_id: str, approver_id: str, verdict: str) -> None:
    def vouch(said: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"kind": "jws", "token": sign_approval(example.approver_key(approver_id), f"key_{approver_id}", said)}

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
                    vouch=vouch,
                ),
            )
        except UNKNOWN:
            await pause(world.chance.randint(1_000, 5_000_000))
        except ApprovalRefused as refused:
            world.exercised[f"refused: {refused.reason}"] += 1
            return
        else:
            if not any(one.get("approver") == approver_id for one in world.judge.runs[run_id].answered.values()):
                world.judge.violated("acknowledged_is_durable", f"the answer of `{approver_id}` to `{run_id}` is gone")
            return


async def _bad_answer(world: SimulatedWorld, run_id: str, asked: Mapping[str, Any], manner: str) -> None:
    """An answer that must not count, whatever it says."""
    approver_id = {"self": "usr_owner_1", "wrong_role": "user_support_lead_5"}.get(manner, GOOD_APPROVERS[1])

    def vouch(said: Mapping[str, Any]) -> Mapping[str, Any]:
        key = example.approver_key("somebody else" if manner == "forged" else approver_id)
        told = {**said, "binding_digest": "sha256:" + "0" * 64} if manner == "moved" else said
        return {"kind": "jws", "token": sign_approval(key, f"key_{approver_id}", told)}

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
                vouch=vouch,
            ),
        )
    except (*UNKNOWN, ApprovalRefused):
        return
    world.judge.violated("answers_that_do_not_count", f"`{asked['approval_id']}` took an answer that is {manner}")


async def operator_actor(world: SimulatedWorld) -> None:
    """Settles what is uncertain, once nothing of it can be on its way, and sometimes what is not to be settled."""
    while True:
        await pause(world.chance.randint(5_000_000, 200_000_000))
        for seen in list(world.judge.runs.values()):
            if seen.unsettled and seen.state == "waiting" and not seen.ended:
                await settle_uncertain(world, seen.run_id)
            elif world.chance.random() < 0.05:
                await _settle_wrongly(world, seen.run_id)


async def settle_uncertain(world: SimulatedWorld, run_id: str) -> None:
    """Look at the payments and say what happened. A person says so only when nothing can arrive any more."""
    if world.shop.under_way or world.zombies():
        return
    seen = world.judge.runs[run_id]
    refund = seen.refund
    assert refund is not None, "what is unsettled was dispatched"
    effect = world.shop.by_key(refund["envelope"]["idempotency_key"])
    told = operator.SettlementInput(
        happened=effect is not None,
        by=OPERATOR_ID,
        evidence_ref="artifact:bank_statement#rev_1",
        output=effect.output if effect else None,
        mutations=(f"refund:{effect.number}",) if effect else (),
    )
    world.exercised["settlements"] += 1
    if world.chance.random() < 0.3:
        by = world.chance.choice(("usr_771", "usr_owner_1", GOOD_APPROVERS[0], OPERATOR_ID))
        await _settle(world, run_id, replace(told, by=by), key_of="somebody else" if by == OPERATOR_ID else by)
    if world.chance.random() < 0.3:
        world.scheduler.spawn("operator", _settle(world, run_id, told, key_of=OPERATOR_ID))
    await _settle(world, run_id, told, key_of=OPERATOR_ID)


async def _settle(world: SimulatedWorld, run_id: str, told: operator.SettlementInput, *, key_of: str) -> None:
    """Settle with somebody's key; who is no operator, or signs with another's key, must be refused."""

    def vouch(said: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"kind": "jws", "token": sign_settlement(example.approver_key(key_of), f"key_{told.by}", said)}

    try:
        await call_process(
            world,
            "settle",
            lambda deployment: operator.settle_effect(deployment, example.EXAMPLE_TENANT, run_id, told, vouch=vouch),
        )
    except (*UNKNOWN, ApprovalRefused) as refused:
        world.exercised[f"settlement refused: {getattr(refused, 'reason', 'unknown')}"] += 1
        return
    if (told.by, key_of) != (OPERATOR_ID, OPERATOR_ID):
        world.judge.violated("settlements_that_do_not_count", f"`{run_id}` took one of `{told.by}` by `{key_of}`")


async def _settle_wrongly(world: SimulatedWorld, run_id: str) -> None:
    """Settle what is not to be settled: the run does not wait for it, and if it does by then, the key is not theirs."""
    told = operator.SettlementInput(happened=False, by=OPERATOR_ID, evidence_ref="artifact:rumour#rev_1")
    await _settle(world, run_id, told, key_of="somebody else")


async def canceller(world: SimulatedWorld) -> None:
    """Cancels some run at some time."""
    if world.chance.random() < 0.5:
        await _brink(world)
    else:
        await pause(world.chance.randint(1, 300_000_000))
    running = [seen for seen in world.judge.runs.values() if not seen.ended]
    if not running:
        return
    run_id = running[world.chance.randrange(len(running))].run_id
    try:
        await call_process(
            world,
            "cancel",
            lambda deployment: operator.request_cancel(
                deployment, example.EXAMPLE_TENANT, run_id, by=OPERATOR_ID, reason="the customer changed their mind"
            ),
        )
    except (*UNKNOWN, ApprovalRefused) as refused:
        world.exercised[f"cancel refused: {type(refused).__name__}"] += 1
        return
    world.exercised["cancels"] += 1
    world.cancelled[run_id] = world.scheduler.now_us


async def _brink(world: SimulatedWorld) -> None:
    """The moment at which some run looks up its act, just before it would be sent."""
    looked_up = world.moments["store.find"]
    for _ in range(1_000):
        if world.moments["store.find"] > looked_up:
            return
        await pause(world.chance.randint(500, 5_000))


async def nudger(world: SimulatedWorld) -> None:
    """Drives runs that somebody else may be driving, or that are not due."""
    for _ in range(world.chance.randint(5, 30)):
        await pause(world.chance.randint(1_000, 5_000_000))
        running = [seen for seen in world.judge.runs.values() if not seen.ended]
        if not running:
            continue
        run_id = running[world.chance.randrange(len(running))].run_id
        try:
            await call_process(
                world, "advance", lambda deployment, run_id=run_id: deployment.advance(example.EXAMPLE_TENANT, run_id)
            )
        except UNKNOWN:
            continue


async def auditor(world: SimulatedWorld) -> None:
    """Verifies the tenant while its runs go on: what it finds must hold at any moment."""
    for _ in range(3):
        await pause(world.chance.randint(1, 60_000_000))
        try:
            await call_process(
                world,
                "audit",
                lambda deployment: verify_tenant(
                    deployment.ports.stores.tenant(example.EXAMPLE_TENANT), example.EXAMPLE_TENANT, example.keys()
                ),
            )
        except UNKNOWN:
            continue


async def meddler(world: SimulatedWorld) -> None:
    """Changes something that runs are bound to at some time."""
    await pause(world.chance.randint(1, 200_000_000))
    meddle(world, world.chance.choice(("evidence", "definitions", "pack")))


def meddle(world: SimulatedWorld, what: str) -> None:
    """Change what approvals are bound to: an approver's roles, evidence, adapter definitions, the pack."""
    now_us = world.scheduler.now_us
    world.exercised[f"changed: {what}"] += 1
    if what == "roles":
        world.people.revoke(GOOD_APPROVERS[0])
        world.meddled.setdefault(GOOD_APPROVERS[0], now_us)
    elif what == "definitions":
        world.change_definitions()
        world.meddled["definitions"] = now_us
    elif what == "pack":
        catalog = world.admin.catalog(example.EXAMPLE_TENANT)
        immediately(
            catalog.withdraw(
                "ctxpack.support@5.2.0", by=OPERATOR_ID, reason="recalled", at_us=now_us, salt=world.entropy.take
            )
        )
        world.meddled.setdefault("pack", now_us)
    else:
        orders = example.orders()
        asked = {orders[one.order_id].customer_id for one in world.scenario.asked if one.order_id in orders}
        asked &= world.verified
        customer = world.chance.choice(sorted(asked or world.verified))
        graph = world.stores.graph(example.EXAMPLE_TENANT)
        head = immediately(graph.head())
        edges = immediately(graph.neighbourhood([f"customer:{customer}"], at=head, hops=1, fan_out=50, limit=50))
        for edge in edges:
            if edge["predicate"] == "identity_verified":
                immediately(graph.put([], [{"retracts": edge["edge_id"], "evidence_ref": "artifact:recheck#rev_2"}]))
        world.meddled.setdefault(customer, now_us)
