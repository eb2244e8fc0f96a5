"""Evidence that moves by itself: up to a stated difference an approval that rests on it counts, and no further."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.audit.replay import replay
from contextos.contracts.envelopes.tool import AdapterReply
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.errors import ApprovalRefused, InvalidTool
from contextos.testing import Person, in_memory
from tests.deployers import TENANT, people
from tests.e2e.test_approvals import edge, in_shop
from tests.e2e.test_verdicts import TEMPLATE, Wrapped, bound, edited
from tests.world import TENANT as SHOP
from tests.world import open_world, request, run


@dataclass
class Health:
    age_s: int
    state: str


class Served:
    """Tools of a server: their answer is what it sends (`now["as_sent"]`), and not what types make of it."""

    def __init__(self, tools: Any, now: dict[str, Any]) -> None:
        self.tools, self.now = tools, now

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tools, name)

    async def call(self, capability: str, args: Any, context: Any) -> AdapterReply:
        reply: AdapterReply = await self.tools.call(capability, args, context)
        sent = self.now.get("as_sent") if capability == "health" else None
        return AdapterReply(output=sent) if sent else reply


@contextmanager
def host(rule: str = "") -> Iterator[tuple[Any, Any, dict[str, Any], list[str]]]:
    """A session that has read the health of a host and asks to restart it; its world, and what was restarted."""
    now: dict[str, Any] = {"age_s": 10, "state": "ill"}
    restarted: list[str] = []

    @contextos.read(produces="health", integrity="trusted", volatile={"age_s": 60})
    def health(name: str) -> Health:
        """How a host is."""
        return Health(age_s=now["age_s"], state=now["state"])

    @contextos.write(risk="irreversible", idempotency="keyed", destinations=[])
    def restart(name: str, key: contextos.Key) -> bool:
        """Restart a host."""
        restarted.append(name)
        return True

    stated: dict[str, Any] = {"version": "1.0.0", "tenant": TENANT, "who": ["deployer"], "approver": "approver"}
    deny = [{"when": rule, "because": "too old"}] if rule else []
    intents = {"ops.restart": {"requires": ["health"]}}
    tools = [Served(contextos.toolset("ops", [health, restart]), now)]
    pack = contextos.pack("ops", tools=tools, intents=intents, deny=deny, **stated)
    listed = people()
    for approver in listed[TENANT]["approvers"]:
        approver["keys"] = []  # the key of `Person` takes their place
    with in_memory(packs=[pack], directory=listed) as app:
        gate = app.gate(session="s", user="ana", token="tok_ana", agent="agt_deploy")
        assert isinstance(gate.call("ops.health", {"name": "a"}, call_id="1"), Done)
        waiting = gate.call("ops.restart", {"name": "a"}, call_id="2")
        assert isinstance(waiting, Waiting), waiting
        yield app, gate, now, restarted


def text_of(app: Any, gate: Any) -> str:
    question = app.approvals.get(TENANT, gate.view().run_id)
    return str(question.statement("omar", "approved").text)


def test_an_approver_is_shown_how_far_evidence_can_move_and_signs_that() -> None:
    with host() as (app, gate, now, restarted):
        assert "/age_s by at most 60" in text_of(app, gate)
        now["age_s"] = 70
        app.call(Person("omar").answer, app, gate.view())
        assert isinstance(gate.call("ops.restart", {"name": "a"}, call_id="2"), Done)
        assert restarted == ["a"]
        record = gate.finish("approved").record
        [receipt] = record["approvals"]
        moved = {"evidence": "health", "place": "/age_s", "was": 10, "now": 70, "tolerance": 60}
        assert receipt["moved"] == [moved]
        again = app.call(replay, app.deployment, TENANT, gate.view().run_id)
        assert again.record_hash == record["record_hash"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"age_s": 71}, "health.age_s was 10 and is 71, and can move by at most 60"),
        ({"age_s": -51}, "health.age_s was 10 and is -51, and can move by at most 60"),
        ({"age_s": 20, "state": "well"}, "health.state was ill and is well"),
    ],
)
def test_beyond_the_tolerance_the_approver_learns_at_once_what_changed(change: dict[str, Any], told: str) -> None:
    with host() as (app, gate, now, restarted):
        question = app.approvals.get(TENANT, gate.view().run_id)
        now |= change
        assert told in app.approvals.get(TENANT, gate.view().run_id).void
        with pytest.raises(ApprovalRefused, match="approvals reask") as refused:
            app.approvals.get(TENANT, gate.view().run_id).statement("omar", "approved")
        assert told in str(refused.value)
        assert question.void == ""
        assert restarted == []


def test_an_answer_that_comes_before_the_change_is_void_and_the_record_has_both_numbers() -> None:
    with host() as (app, gate, now, restarted):
        view = gate.view()
        # It is answered while it holds; the run goes on when it does not any more.
        question = app.approvals.get(TENANT, view.run_id)
        question.answer(question.statement("omar", "approved").signed_with(Person("omar")._key))
        now["age_s"] = 400
        answer = gate.call("ops.restart", {"name": "a"}, call_id="2")
        assert restarted == []
        assert isinstance(answer, Refused), answer
        assert answer.reasons[0].code == "approval_void"
        [receipt] = gate.finish("denied").record["approvals"]
        assert receipt["verdict"] == "void"
        assert (receipt["moved"][0]["was"], receipt["moved"][0]["now"]) == (10, 400)


def test_what_the_schema_of_a_read_does_not_allow_is_within_no_tolerance() -> None:
    with host() as (app, gate, now, restarted):
        question = app.approvals.get(TENANT, gate.view().run_id)
        question.answer(question.statement("omar", "approved").signed_with(Person("omar")._key))
        now["as_sent"] = {"age_s": 10.5, "state": "ill"}
        answer = gate.call("ops.restart", {"name": "a"}, call_id="2")
        assert isinstance(answer, Refused), answer
        assert answer.reasons[0].code == "approval_void"
        assert restarted == []


def test_rules_are_judged_anew_with_the_number_as_it_is_now() -> None:
    with host("evidence.health.age_s > 50") as (app, gate, now, restarted):
        now["age_s"] = 60
        app.call(Person("omar").answer, app, gate.view())
        answer = gate.call("ops.restart", {"name": "a"}, call_id="2")
        assert isinstance(answer, Refused), answer
        assert answer.reasons[0].code == "approval_void"
        assert restarted == []


@pytest.mark.parametrize("taken", [False, True])
def test_evidence_that_an_argument_was_taken_from_cannot_move(taken: bool, tmp_path: Path) -> None:
    """The amount is the caller's, or the total that a read of the plan finds after the graph named it too. That total
    moves after the approval, by less than its tolerance.
    """

    def taking(body: dict[str, Any]) -> None:
        refs = body["intelligence_refs"]
        refs["ontology"]["relationship_types"].append("looked_up")
        refs["retrieval"]["evidence"].append({"name": "order_lookup", "seed": 0, "path": ["looked_up"]})
        total = bound("evidence", "/order_lookup/value/total_inr")
        edited(*TEMPLATE, "steps", 2, "params", "amount_inr", to=total)(body)

    async def go() -> None:
        world = await open_world(tmp_path, pack=taking if taken else None)
        for adapter, place in (("adp_orders", "/total_inr"), ("adp_policy", "/refundable_inr")):
            inner = world.adapters[adapter]
            [read] = inner.describe().capabilities
            moving = (read.model_copy(update={"volatile": {place: 100}}),)
            definition = inner.describe().model_copy(update={"capabilities": moving})
            world.adapters[adapter] = Wrapped(inner, definition=definition)  # type: ignore[assignment]
        await world.put_facts([edge("looked_up", "check:order_881", src="order:ord_881", value={"total_inr": 9900})])
        waiting = await world.invoke(request(9900, "req_1"))
        assert waiting.state == "waiting"
        await world.answer(waiting.run_id)
        await in_shop("UPDATE orders SET total_inr = 9901 WHERE order_id = 'ord_881'")(world)
        await world.deployment.advance(SHOP, waiting.run_id)
        assert [one["amount_inr"] for one in world.refunds()] == ([] if taken else [9900])
        [receipt] = (await world.deployment.view(SHOP, waiting.run_id)).record["approvals"]
        assert receipt["verdict"] == ("void" if taken else "approved")
        world.close()

    run(go())


@pytest.mark.parametrize("volatile", [{"age": 60}, {"state": 1}, {"age_s": 0}, {"age_s": -1}, {"/age_s/x": 1}])
def test_what_is_no_number_of_the_answer_cannot_be_volatile(volatile: dict[str, float]) -> None:
    with pytest.raises(InvalidTool):

        @contextos.read(produces="health", volatile=volatile)
        def health(name: str) -> Health:
            """How a host is."""
            return Health(age_s=1, state=name)


def test_only_evidence_can_be_volatile() -> None:
    with pytest.raises(InvalidTool, match="that `produces` evidence"):

        @contextos.read(volatile={"age_s": 1})
        def health(name: str) -> Health:
            """How a host is."""
            return Health(age_s=1, state=name)
