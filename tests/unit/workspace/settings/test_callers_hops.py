"""The setting `hops`: what is accepted is enforced, and everything else is refused by its place."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from contextos.errors import InvalidSettings
from contextos.workspace.settings.callers import HopsSetting
from contextos.workspace.settings.reading import check_value, read_table

PARTNER = {"issuer": "https://partner.example", "tenants": ["acme"], "jwks_file": "partner.jwks"}
GOOD = {"address": "https://us.example", "issuers": [PARTNER]}


def read_hops(table: dict[str, Any]) -> HopsSetting:
    made: HopsSetting = read_table(HopsSetting, "", deepcopy(table), {})
    return made


def test_a_partner_is_read_with_its_audience() -> None:
    made = read_hops(GOOD)
    assert check_value(HopsSetting, made) == made
    trusted = made.issuers[0].trusted(made.address)
    assert (trusted.issuer, trusted.audience) == ("https://partner.example", "https://us.example")


@pytest.mark.parametrize(
    "changed",
    [
        {"address": ""},
        {"issuers": "x"},
        {"issuers": [PARTNER, PARTNER]},
        {"issuers": [PARTNER | {"issuer": "https://us.example"}]},
        {"issuers": [PARTNER | {"jwks_url": "https://partner.example/jwks"}]},
        {"issuers": [PARTNER | {"jwks_file": ""}]},
        {"issuers": [PARTNER | {"tenants": []}]},
        {"issuers": [PARTNER | {"algorithms": []}]},
        {"issuers": [PARTNER | {"jwks_url": "http://partner.example/jwks", "jwks_file": ""}]},
        {"issuers": [PARTNER | {"isuer": "x"}]},
    ],
)
def test_what_is_wrong_is_refused_in_its_place(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read_hops(GOOD | changed)
    (place,) = changed
    assert all(one.pointer.startswith(f"/{place}") and one.remedy for one in refused.value.problems)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [({"leeway_s": 301}, "leeway_s"), ({"algorithms": ["HS256"]}, "algorithms/0"), ({"issuer": ""}, "issuer")],
)
def test_a_value_that_no_issuer_can_have_is_named_at_its_partner(wrong: dict[str, Any], name: str) -> None:
    other = PARTNER | {"issuer": "https://other.example"}
    with pytest.raises(InvalidSettings) as refused:
        read_hops(GOOD | {"issuers": [other, PARTNER | wrong]})
    assert [one.pointer for one in refused.value.problems] == [f"/issuers/1/{name}"]


def test_a_shared_secret_proves_no_partner() -> None:
    with pytest.raises(InvalidSettings, match="this algorithm is not accepted"):
        read_hops(GOOD | {"issuers": [PARTNER | {"algorithms": ["HS256"]}]})


def test_another_object_is_not_the_setting() -> None:
    with pytest.raises(InvalidSettings):
        check_value(HopsSetting, {"address": "https://us.example"})
