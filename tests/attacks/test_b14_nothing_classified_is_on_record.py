"""H2, B14: what the pack classifies, and every secret, is redacted before it is on record, prompted or printed.

The attacks: a card number in the message, the context or the ids of a request, in the graph, in the error and in the
mutations of an adapter; a secret in each of them; and a call whose argument would be what was redacted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.errors import InvalidInput, LostReply
from tests.world import TENANT, TestWorld, open_world, request, run

Body = dict[str, Any]
CARD, SECRET = "4111 1111 1111 1111", "ghp_" + "a1B2" * 9


async def stored(world: TestWorld) -> str:
    """Everything that the tenant's journal holds, as text."""
    store = world.stores.tenant(TENANT)
    streams = ["index", "control", *[view.run_id for view in await runs(world)]]
    entries = [entry for stream in streams for entry in await store.read(stream)]
    return "\n".join((entry.body or b"").decode() + entry.key for entry in entries)


async def runs(world: TestWorld) -> list[Any]:
    return list(world.extra.get("views", ()))


async def sent(world: TestWorld, body: Body) -> Any:
    view = await world.invoke(body)
    world.extra.setdefault("views", []).append(view)
    return view


def test_a_card_number_in_a_request_is_nowhere_on_record_and_the_manifest_says_where_it_was(
    stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        body = request(900, "req_card", note={"said": [f"my card is {CARD}"]})
        body["input"]["message"] = f"Refund ord_881 to {CARD}."
        view = await sent(world, body)
        assert view.state == "completed", view.record
        text = await stored(world)
        assert CARD not in text
        assert CARD.replace(" ", "") not in text
        compiled = [
            one for one in await world.stores.tenant(TENANT).read(view.run_id) if one.kind == "context.compiled"
        ]
        redactions = read_body(compiled[0])["manifests"]["redactions"]
        assert [(one["place"], one["kinds"]) for one in redactions] == [
            ("request:/input/context/note/said/0", ["pan"]),
            ("request:/input/message", ["pan"]),
        ]
        again = await world.invoke(body)
        assert (again.run_id, len(world.refunds())) == (view.run_id, 1), "the same request is the same run"
        await world.aclose()

    run(go())


@pytest.mark.parametrize("place", ["message", "context", "key"])
def test_a_secret_in_a_request_is_refused_and_nothing_is_stored(place: str, stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        body = request(900, "req_secret")
        if place == "message":
            body["input"]["message"] = f"my token is {SECRET}"
        else:
            body["input"]["context"]["note"] = SECRET if place == "context" else {SECRET: 1}
        before = await world.stores.tenant(TENANT).read("index")
        with pytest.raises(InvalidInput) as refused:
            await world.invoke(body)
        assert refused.value.problems[0].code == "secret"
        assert SECRET not in str(refused.value)
        assert await world.stores.tenant(TENANT).read("index") == before
        await world.aclose()

    run(go())


def test_what_was_redacted_is_no_argument(stores: str, tmp_path: Path) -> None:
    def pack(body: Body) -> None:
        for step in body["decision_layer"]["task_templates"][0]["steps"]:
            step["params"]["order_id"] = {"from": "request", "pointer": "/input/context/order_id"}

    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, pack=pack)
        view = await sent(world, request(900, "req_argument", order_id=CARD.replace(" ", "")))
        assert view.record is not None
        assert (view.state, world.refunds()) == ("rejected", [])
        assert CARD.replace(" ", "") not in await stored(world)
        await world.aclose()

    run(go())


class Talking:
    """The payments of the shop, which name a card and a secret in mutations or in an error."""

    def __init__(self, inner: Any, how: str, text: str) -> None:
        self.inner, self.how, self.text = inner, how, text

    def describe(self) -> AdapterDefinition:
        found: AdapterDefinition = self.inner.describe()
        return found

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        if self.how == "lost":
            raise LostReply("adp_payments", f"lost after {self.text}")
        reply: AdapterReply = await self.inner.call(capability, args, context)
        return reply.model_copy(update={"mutations": (f"paid to {self.text}",)})

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        return None


@pytest.mark.parametrize("how", ["lost", "mutations"])
@pytest.mark.parametrize("text", [CARD, SECRET])
def test_errors_and_mutations_of_an_adapter_hold_neither(how: str, text: str, stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores, payments="none")
        talking: Any = Talking(world.adapters["adp_payments"], how, text)
        world.adapters["adp_payments"] = talking
        view = await sent(world, request(900, "req_talk"))
        assert view.state == ("waiting" if how == "lost" else "completed")
        assert text not in await stored(world)
        await world.aclose()

    run(go())


@pytest.mark.parametrize("text", [CARD, SECRET])
def test_evidence_of_the_graph_is_redacted_before_it_is_recorded(text: str, stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        edge = {
            "src": "order:ord_881",
            "predicate": "placed_by",
            "dst": "check:note_1",
            "value": f"seen: {text}",
            "evidence_ref": "artifact:note#rev_1",
            "observed_at": "2026-05-03T09:30:00Z",
            "integrity": "untrusted",
            "classification": "CONFIDENTIAL",
        }
        await world.put_facts([edge], [{"ceid": "check:note_1", "type": "check", "properties": {}}])
        await sent(world, request(900, "req_graph"))
        found = await stored(world)
        assert "seen: [redacted:" in found
        assert text not in found
        await world.aclose()

    run(go())
