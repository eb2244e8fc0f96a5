"""A planner that an embedder wrote: it proposes, its answer is recorded, and nothing it says is believed unchecked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.contracts.ports.concurrency import Sequential
from contextos.contracts.ports.planning import PlanRequest
from contextos.deployment.deployment import Deployment
from contextos.errors import InvalidSettings, Unavailable
from tests.world import TENANT, TestWorld, open_world, request, run

ORDER = {"order_id": {"from": "request", "pointer": "/input/context/order_id"}}
AMOUNT = {"amount_inr": {"from": "request", "pointer": "/input/context/refund_amount"}}


class RefundPlanner:
    """Looks the order up, evaluates the returns policy and pays: the plan of `examples/support_refund`, in code."""

    name = "acme.planner@1.2.0"

    def __init__(self) -> None:
        self.asked: list[PlanRequest] = []

    async def propose(self, request: PlanRequest) -> Mapping[str, Any]:
        self.asked.append(request)
        return {
            "template_id": request.templates[0],
            "steps": [
                {"id": "look", "tool": "adp_orders.lookup", "params": ORDER, "approval_mode": "read_only"},
                {
                    "id": "check",
                    "tool": "adp_policy.eval",
                    "params": {**ORDER, **AMOUNT},
                    "depends_on": ["look"],
                    "approval_mode": "read_only",
                },
                {
                    "id": "s3",
                    "tool": "adp_payments.issue_refund",
                    "params": {**ORDER, **AMOUNT, "currency": "INR"},
                    "depends_on": ["check"],
                    "approval_mode": "destructive",
                },
            ],
            "decision_checkpoints": [{"decision_id": "support.refund.execute", "after_step": "check"}],
        }


def planned_by(world: TestWorld, planner: Any) -> None:
    """Configure the planner, or none."""
    world.deployment.ports = replace(world.deployment.ports, planner=planner)


def test_a_planner_of_an_embedder_drives_a_refund_and_replays_without_it(tmp_path: Path) -> None:
    async def refund() -> None:
        world, planner = await open_world(tmp_path, stores="sqlite"), RefundPlanner()
        try:
            planned_by(world, planner)
            view = await world.invoke(request(4200, "req_planned"))
            assert view.waiting
            view = await world.approve(view.run_id)
            assert view.state == "completed"
            assert [asked.revision for asked in planner.asked] == [0], "an answer on record is not asked for again"
            assert planner.asked[0].run_id == view.run_id
            assert "identity_verified" in planner.asked[0].evidence
            assert len(world.refunds()) == 1
            assert view.record["outputs"]["refund_amount"] == 4200
            assert view.record["rationale"]["strategy"].startswith("acme.planner@1.2.0:")
            planned_by(world, None)
            replayed = await replay(world.deployment, TENANT, view.run_id)
            assert replayed.record_hash == view.record["record_hash"]
            kinds = await world.kinds(view.run_id)
            assert kinds.index("planner.answered") + 1 == kinds.index("plan.proposed")
        finally:
            await world.aclose()

    run(refund())


class Says(RefundPlanner):
    """Answers what the test says, with its own plan at hand."""

    def __init__(self, says: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__()
        self._says = says

    async def propose(self, request: PlanRequest) -> Any:
        return self._says(dict(await super().propose(request)))


def cyclic(plan: dict[str, Any]) -> Any:
    params: dict[str, Any] = {}
    params["again"] = params
    return changed(plan, params=params)


def changed(plan: dict[str, Any], **change: Any) -> dict[str, Any]:
    return {**plan, "steps": [*plan["steps"][:-1], {**plan["steps"][-1], **change}]}


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no object": (lambda _plan: ["refund"], "schema_mismatch"),
    "nothing": (lambda _plan: None, "schema_mismatch"),
    "wrong type": (lambda plan: {**plan, "steps": "all"}, "schema_mismatch"),
    "no steps": (lambda plan: {**plan, "steps": []}, "schema_mismatch"),
    "not json": (lambda plan: {**plan, "steps": {1, 2}}, "schema_mismatch"),
    "not a number": (lambda plan: changed(plan, params={"amount_inr": float("nan")}), "schema_mismatch"),
    "cyclic": (cyclic, "schema_mismatch"),
    "huge": (lambda plan: changed(plan, params={"order_id": "x" * 300_000}), "schema_mismatch"),
    "no pointer": (
        lambda plan: changed(plan, params={"order_id": {"from": "request", "pointer": "x"}}),
        "schema_mismatch",
    ),
    "a pointer that is none": (
        lambda plan: changed(plan, params={"order_id": {"from": "step", "pointer": 5}}),
        "schema_mismatch",
    ),
    "no source": (lambda plan: changed(plan, params={"order_id": {"from": [], "pointer": "/a"}}), "schema_mismatch"),
    "another run's plan": (lambda plan: {**plan, "plan_id": "plan_0000000000000001"}, "schema_mismatch"),
    "another planner": (lambda plan: {**plan, "planner": "template@1"}, "schema_mismatch"),
    "unknown template": (lambda plan: {**plan, "template_id": "pay_everybody@9"}, "schema_mismatch"),
    "unknown tool": (lambda plan: changed(plan, tool="adp_payments.drain"), "tool_not_in_manifest"),
    "understated": (lambda plan: changed(plan, approval_mode="read_only"), "approval_mode_mismatch"),
    "no checkpoint": (lambda plan: {**plan, "decision_checkpoints": []}, "violates_decision_spec"),
    "a cycle": (lambda plan: changed(plan, depends_on=["s3"]), "schema_mismatch"),
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_the_answer_of_a_hostile_planner_becomes_a_verdict_that_replays(tmp_path: Path, hostile: str) -> None:
    says, code = HOSTILE[hostile]

    async def refused() -> None:
        world = await open_world(tmp_path)
        try:
            planned_by(world, Says(says))
            view = await world.invoke(request(900, "req_hostile"))
            assert view.ended
            assert view.record["rationale"]["failures"][0]["code"] == code
            assert world.refunds() == []
            planned_by(world, None)
            await replay(world.deployment, TENANT, view.run_id)
        finally:
            await world.aclose()

    run(refused())


class Failing(RefundPlanner):
    """Fails once, and is well afterwards."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self._error = error

    async def propose(self, request: PlanRequest) -> Mapping[str, Any]:
        if not self.asked:
            self.asked.append(request)
            if self._error is None:
                await asyncio.sleep(60)
            else:
                raise self._error
        return await super().propose(request)


@pytest.mark.parametrize("error", [ValueError("secret"), Unavailable("llm", "busy"), None], ids=["any", "away", "slow"])
def test_a_planner_that_fails_is_a_dependency_that_is_away(tmp_path: Path, error: Exception | None) -> None:
    def short(pack: dict[str, Any]) -> None:
        pack["decision_layer"]["task_templates"][0]["plan_timeout_ms"] = 5_000

    class Impatient(type(asyncio_concurrency())):  # type: ignore[misc]
        async def within(self, timeout_ms: int, call: Any) -> Any:
            # The template's time for its planner; the adapters have times of their own.
            return await super().within(20 if timeout_ms == 5_000 else timeout_ms, call)

    async def refund() -> None:
        world = await open_world(tmp_path, pack=short)
        try:
            planned_by(world, Failing(error))
            world.deployment.ports = replace(world.deployment.ports, concurrency=Impatient())
            with pytest.raises(Unavailable) as away:
                await world.invoke(request(900, "req_failing"))
            assert "secret" not in str(away.value)
            assert (await world.invoke(request(900, "req_failing"))).state == "completed"
            assert len(world.refunds()) == 1
        finally:
            await world.aclose()

    run(refund())


def asyncio_concurrency() -> Any:
    from contextos.workspace.engine.concurrency import AsyncioConcurrency

    return AsyncioConcurrency()


def test_a_run_goes_on_only_with_the_planner_it_began_with(tmp_path: Path) -> None:
    async def refund() -> None:
        world = await open_world(tmp_path)
        try:
            planned_by(world, Failing(Unavailable("llm", "busy")))
            body = {**request(900, "req_other"), "mode": "long_running"}
            view = await world.invoke(body)
            for other in (None, renamed("acme.planner@2.0.0")):
                planned_by(world, other)
                with pytest.raises(Unavailable, match=r"began with this planner and this process has `.*`; configure"):
                    await world.deployment.advance(TENANT, view.run_id)
            planned_by(world, RefundPlanner())
            assert (await world.deployment.advance(TENANT, view.run_id)).state == "completed"
        finally:
            await world.aclose()

    run(refund())


def renamed(name: str) -> RefundPlanner:
    planner = RefundPlanner()
    planner.name = name  # type: ignore[misc]
    return planner


@pytest.mark.parametrize("name", ["template@1", "no version", "", "a@b@c", "x" * 80 + "@1"])
def test_a_planner_without_a_name_of_its_own_starts_no_deployment(tmp_path: Path, name: str) -> None:
    async def refused() -> None:
        world = await open_world(tmp_path)
        try:
            with pytest.raises(InvalidSettings, match="a planner has a name of its own"):
                Deployment(ports=replace(world.deployment.ports, planner=renamed(name)), config=world.deployment.config)
        finally:
            await world.aclose()

    run(refused())


def gated(body: dict[str, Any]) -> None:
    """The pack asks a person by its template and not by a rule, and it has a second gate and a laxer spec."""
    layer = body["decision_layer"]
    layer["task_templates"][0]["steps"][-1]["requires"] = ["GATE_FINANCE_APPROVAL"]
    (gate,) = body["policy_layer"]["approval_gates"]
    body["policy_layer"]["approval_gates"].append({**gate, "gate_id": "GATE_ANYBODY"})
    (spec,) = layer["decision_specs"]
    layer["decision_specs"].append({**spec, "decision_key": "support.note", "required_evidence": []})


@pytest.mark.parametrize("requires", [[], ["GATE_FINANCE_APPROVAL"]], ids=["dropped", "kept"])
def test_a_planner_cannot_drop_a_gate_of_the_template(tmp_path: Path, requires: list[str]) -> None:
    async def asked() -> None:
        world = await open_world(tmp_path, pack=gated)
        try:
            planned_by(world, Says(lambda plan: changed(plan, requires=requires)))
            view = await world.invoke(request(900, "req_gated"))
            assert view.waiting is not None
            assert view.waiting["gate_id"] == "GATE_FINANCE_APPROVAL"
            assert world.refunds() == []
            assert (await world.approve(view.run_id)).state == "completed"
            planned_by(world, None)
            await replay(world.deployment, TENANT, view.run_id)
        finally:
            await world.aclose()

    run(asked())


LAXER: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another gate": (lambda plan: changed(plan, requires=["GATE_ANYBODY"]), "policy_denied"),
    "another gate twice": (lambda plan: changed(plan, requires=["GATE_ANYBODY"] * 2), "policy_denied"),
    "another spec": (
        lambda plan: {**plan, "decision_checkpoints": [{"decision_id": "support.note", "after_step": "check"}]},
        "violates_decision_spec",
    ),
}


@pytest.mark.parametrize("laxer", LAXER)
def test_a_planner_cannot_choose_a_laxer_gate_or_spec_than_the_template(tmp_path: Path, laxer: str) -> None:
    says, code = LAXER[laxer]

    async def refused() -> None:
        world = await open_world(tmp_path, pack=gated)
        try:
            planned_by(world, Says(says))
            view = await world.invoke(request(900, "req_laxer"))
            assert view.ended
            assert view.record["rationale"]["failures"][0]["code"] == code
            assert world.refunds() == []
            planned_by(world, None)
            await replay(world.deployment, TENANT, view.run_id)
        finally:
            await world.aclose()

    run(refused())


def test_a_planner_without_a_time_limit_is_refused(tmp_path: Path) -> None:
    world = run(open_world(tmp_path))
    ports = replace(world.deployment.ports, planner=RefundPlanner(), concurrency=Sequential())
    with pytest.raises(InvalidSettings, match="a planner has a time limit"):
        Deployment(ports=ports, config=world.deployment.config)
    world.close()
