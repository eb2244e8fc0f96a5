"""D21: the payment was made and its answer lost; an error to the second attempt does not pass for "not paid"."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from contextos.contracts.envelopes.tool import AdapterReply, ToolError
from contextos.deployment.queries.run_view import RunView
from contextos.deployment.queries.timeline import tell_story
from contextos.errors import LostReply, Unavailable
from tests.attacks.test_d21_keyed_write_survives_an_outage import asked, sweep_until_quiet
from tests.world import TENANT, TestWorld, open_world, run

ERRORS = {
    "a server that only knows that it paid": ("http_409", "this order is already paid"),
    "a key that the server forgot": ("not_refundable", "the order has not that much left to refund"),
    "a token that ended meanwhile": ("http_401", "the token is not valid"),
    "an MCP server whose definition drifted": ("definition_drift", "nothing was sent"),
    "more than a record keeps": ("http_400", "x" * 200_000),
}


class Forgetful:
    """The payments of the shop: the first answer is lost, after the payment or before, and then `errors` follow."""

    def __init__(self, inner: Any, errors: list[AdapterReply], *, pays: bool = True) -> None:
        self.inner, self.errors, self.pays, self.keys = inner, errors, pays, list[str]()
        self.describe, self.lookup = inner.describe, inner.lookup

    async def call(self, capability: str, args: Mapping[str, Any], context: Any) -> AdapterReply:
        self.keys.append(context.idempotency_key)
        if len(self.keys) > 1:
            return self.errors.pop(0)
        if self.pays:
            await self.inner.call(capability, args, context)
        raise LostReply("no answer")


def refusal(code: str, message: str, *mutations: str) -> AdapterReply:
    return AdapterReply(error=ToolError(code=code, message=message), mutations=mutations)


async def attacked(world: TestWorld, errors: list[AdapterReply], *, pays: bool = True) -> tuple[Forgetful, RunView]:
    service = Forgetful(world.adapters["adp_payments"], errors, pays=pays)
    world.adapters["adp_payments"] = service  # type: ignore[assignment]
    view = await world.invoke(asked(1))
    await sweep_until_quiet(world)
    return service, await world.deployment.view(TENANT, view.run_id)


@pytest.mark.requirement("A-RESENT-ERROR", "A-NO-BLIND-RETRY")
@pytest.mark.parametrize("said", ERRORS.values(), ids=list(ERRORS))
@pytest.mark.parametrize("pays", [True, False], ids=["paid", "not paid"])
def test_an_error_to_the_second_attempt_is_settled_by_a_person(
    said: tuple[str, str], pays: bool, tmp_path: Path
) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        service, view = await attacked(world, [refusal(*said)], pays=pays)
        assert view.waiting is not None, "the run ended as if nothing had happened"
        assert view.waiting["for"] == "settlement"
        assert (len(world.refunds()), len(service.keys), len(set(service.keys))) == (int(pays), 2, 1)
        story = str(tell_story(await world.stores.tenant(TENANT).read(view.run_id)))
        assert f"answered with an error, so it is not known whether it happened before: `{said[0]}`" in story
        view = await world.settle(view.run_id, world.by_the_books())
        assert view.record is not None
        assert (view.ended, len(view.record["effects"])) == (True, int(pays)), "the record says what the books say"
        assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        world.close()

    run(act())


@pytest.mark.requirement("A-RESENT-ERROR")
def test_nobody_pays_it_again_while_a_person_has_not_settled_it(tmp_path: Path) -> None:
    """A second request for the refund finds it claimed. Before, the error had released it."""

    async def act() -> None:
        world = await open_world(tmp_path)
        service, _ = await attacked(world, [refusal("http_409", "already paid")])
        again = await world.invoke(asked(1) | {"request_id": "req_again"})
        assert (again.ended, len(service.keys), len(world.refunds())) == (False, 2, 1)
        world.close()

    run(act())


@pytest.mark.requirement("A-RESENT-ERROR")
def test_an_error_that_names_what_it_changed_says_that_it_happened(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        _, view = await attacked(world, [refusal("half_done", "paid, and not booked", "refund:txn_1")])
        assert view.record is not None
        assert [one["mutations"] for one in view.record["effects"]] == [["refund:txn_1"]]
        world.close()

    run(act())


@pytest.mark.requirement("A-RESENT-ERROR")
def test_an_error_after_attempts_that_were_certainly_not_sent_is_the_answer(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)

        class Away(Forgetful):
            async def call(self, capability: str, args: Mapping[str, Any], context: Any) -> AdapterReply:
                self.keys.append(context.idempotency_key)
                if len(self.keys) > 1:
                    return self.errors.pop(0)
                raise Unavailable("adp_payments", "it is away")

        service = Away(world.adapters["adp_payments"], [refusal("not_refundable", "nothing is left")])
        world.adapters["adp_payments"] = service  # type: ignore[assignment]
        view = await world.invoke(asked(1))
        await sweep_until_quiet(world)
        view = await world.deployment.view(TENANT, view.run_id)
        assert (view.ended, view.waiting, len(service.keys), world.refunds()) == (True, None, 2, [])
        world.close()

    run(act())
