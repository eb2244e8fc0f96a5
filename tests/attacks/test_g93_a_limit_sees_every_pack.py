"""A limit of one pack about a tool of another: they are not pinned beside each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from contextos.contracts.acts import PackPin
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.acts.governance import pin_packs, withdraw_pin
from contextos.errors import InvalidArtifact
from contextos.testing import TEST_OPERATOR, Person, in_memory
from contextos.trust.seal import seal
from tests.bank import PAY, TENANT, WIRE, bank_pack
from tests.deployers import people
from tests.world import run

BY: Final = Person(TEST_OPERATOR).actor()


def limited(over: str, name: str = "acme.bank") -> dict[str, Any]:
    """The bank's pack under a name, with a limit of its own."""
    pack: dict[str, Any] = bank_pack([]).expansion.pack.to_json()
    pack["pack_meta"]["pack_id"] = name
    bundle = pack["policy_layer"]["policy_bundles"][0]
    more = {"subject": "order"} if over == "subject" else {}
    bundle["history"] = {
        "paid": {"capability": PAY, "aggregate": "sum", "of": "amount", "over": over, "window_s": 60, **more}
    }
    limit = {
        "rule_id": f"R_{name.upper().replace('.', '_')}_LIMIT",
        "applies_to": {"capability": PAY},
        "if": {">": [{"+": [{"var": "history.paid"}, {"var": ["args.amount", 0]}]}, 1500]},
        "then": {"allow": False},
    }
    bundle["policy_dsl"]["rules"].append(limit)
    return pack


def free() -> dict[str, Any]:
    pack: dict[str, Any] = bank_pack([]).expansion.pack.to_json()
    pack["pack_meta"]["pack_id"] = "acme.other"
    return pack


def pin_of(document: dict[str, Any]) -> PackPin:
    meta = document["pack_meta"]
    ref = f"{meta['pack_id']}@{meta['pack_version']}"
    return PackPin(refs=(ref,), intents=("acme.bank",), environment="dev")


async def pin(app: Any, document: dict[str, Any]) -> None:
    await app.publish(seal(PACK_TYPE, canonical(document), app.keys, "pack"), by=BY)
    version = (await app.artifacts.active(TENANT)).version
    await pin_packs(app.deployment, TENANT, pin_of(document), expected=version, by=BY)


def in_tenant(play: Callable[[Any], Awaitable[None]]) -> None:
    """Play in a tenant with the bank's tools, in which no pack is pinned."""

    async def inside() -> None:
        async with in_memory(packs=[bank_pack([])], directory=people(), lint=False) as app:
            version = (await app.artifacts.active(TENANT)).version
            only = pin_of({"pack_meta": {"pack_id": "acme.bank", "pack_version": "1.0.0"}})
            await withdraw_pin(app.deployment, TENANT, only, expected=version, by=BY)
            await play(app)

    run(inside())


@pytest.mark.parametrize(
    ("over", "limit_first"), [("tenant", True), ("user", False), ("agent", True), ("subject", False)]
)
def test_a_pack_whose_calls_a_limit_would_not_count_is_not_pinned_beside_it(over: str, limit_first: bool) -> None:
    async def play(app: Any) -> None:
        pair = [limited(over, "acme.first"), free()]
        first, second = pair if limit_first else pair[::-1]
        await pin(app, first)
        with pytest.raises(
            InvalidArtifact, match=r"`acme.first@1.0.0` does not count `bank.pay` in `acme.other@1.0.0`"
        ):
            await pin(app, second)
        assert [one.refs for one in (await app.artifacts.active(TENANT)).packs] == [pin_of(first).refs]

    in_tenant(play)


@pytest.mark.parametrize("subject", ["bill", "rupees"])
def test_packs_that_know_the_order_of_a_tool_by_another_argument_do_not_count_each_other(subject: str) -> None:
    def wiring(name: str, by: str) -> dict[str, Any]:
        pack = limited("subject", name)
        history = pack["policy_layer"]["policy_bundles"][0]["history"]
        history["paid"]["also"] = {WIRE: {"of": "rupees", "subject": by}}
        return pack

    async def play(app: Any) -> None:
        await pin(app, wiring("acme.first", "bill"))
        beside = pin(app, wiring("acme.second", subject))
        if subject == "bill":
            await beside
        else:
            with pytest.raises(InvalidArtifact, match=r"does not count `bank.wire` in"):
                await beside

    in_tenant(play)


def test_packs_with_the_same_limit_count_each_other() -> None:
    async def play(app: Any) -> None:
        await pin(app, limited("tenant", "acme.first"))
        await pin(app, limited("tenant", "acme.second"))
        with pytest.raises(InvalidArtifact, match="does not count"):
            await pin(app, limited("user", "acme.third"))

    in_tenant(play)
