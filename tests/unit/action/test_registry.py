"""What the registry shows to somebody: what the pack lists and permits, less what it prohibits."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.action.registry import Registry, surface
from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.tool import AdapterDefinition
from tests.unit.control.example import adapters, pack, pack_json

REFUND = "adp_payments.issue_refund"
LAYER = "/tooling_layer"
ALL = [f"{one['adapter_id']}.{one['capability']}" for one in pack_json()["tooling_layer"]["permissions"]]
PLACE = ALL.index(REFUND)
ROLES = frozenset({"support_agent"})
SCOPES = frozenset({"orders.read", "payments.refund"})


def shown(
    changes: dict[str, Any],
    roles: frozenset[str] = ROLES,
    scopes: frozenset[str] = SCOPES,
    live: Any = None,
    acts_for_user: bool = True,
    platform: frozenset[str] = frozenset({"tools:read", "tools:write"}),
) -> dict[str, Any]:
    """Why each capability that is not granted is withheld."""
    of_pack = pack(changes)
    capabilities = Registry().register(tuple((live or adapters()).values()), of_pack.tooling_layer.permissions)
    found = surface(of_pack, capabilities, roles, scopes, platform, acts_for_user=acts_for_user)
    assert [one.capability_id for one in found] == sorted(ALL), "every capability is listed"
    return {one.capability_id: one.withheld for one in found if not one.granted}


@pytest.mark.requirement("C-SURFACE")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({f"{LAYER}/prohibitions/-": REFUND}, "prohibited"),
        ({f"{LAYER}/permissions/{PLACE}/allow": False}, "no_permission"),
        ({f"{LAYER}/permissions/{PLACE}/roles": ["support_lead"]}, "no_permission"),
        (
            {
                f"{LAYER}/adapter_registry": [
                    one
                    for one in pack_json()["tooling_layer"]["adapter_registry"]
                    if one["adapter_id"] != "adp_payments"
                ]
            },
            "not_in_pack",
        ),
    ],
)
def test_a_capability_is_shown_if_it_is_listed_and_permitted_and_not_prohibited(
    changes: dict[str, Any], why: str
) -> None:
    assert shown({}) == {}
    assert shown(changes) == {REFUND: why}


@pytest.mark.requirement("C-SURFACE")
def test_to_nobody_nothing_is_shown() -> None:
    assert shown({}, roles=frozenset()) == dict.fromkeys(ALL, "no_permission")


@pytest.mark.requirement("C-SURFACE")
@pytest.mark.parametrize(
    ("scopes", "withheld"),
    [(SCOPES, {}), (frozenset({"orders.read"}), {REFUND: "scope_missing"}), (frozenset(), {REFUND: "scope_missing"})],
)
def test_a_capability_is_withheld_from_who_lacks_one_of_its_scopes(scopes: frozenset[str], withheld: Any) -> None:
    live = adapters()
    body = live["adp_payments"].to_json()
    body["capabilities"][0]["required_scopes"] = ["payments.refund"]
    live["adp_payments"] = parse(AdapterDefinition, body)
    assert shown({}, scopes=scopes, live=live) == withheld


def test_a_write_on_behalf_of_a_user_needs_their_delegation() -> None:
    assert shown({}, acts_for_user=False) == {REFUND: "delegation_missing"}


def test_a_capability_is_withheld_from_an_agent_without_its_platform_scope() -> None:
    assert shown({}, platform=frozenset({"tools:read"})) == {REFUND: "platform_scope_missing"}
    assert set(shown({}, platform=frozenset()).values()) == {"platform_scope_missing"}
    assert len(shown({}, platform=frozenset({"a2a:send"}))) == len(ALL)
    assert shown({}) == {}
