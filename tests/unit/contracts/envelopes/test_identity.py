"""Who a later look-up finds is stated as the same only if it is, and reads back as who was found."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.entries.recorded import DispatchIdentity
from contextos.contracts.envelopes.identity import Principals

KNOWN: dict[str, Any] = {
    "user": {
        "user_id": "usr_771",
        "role": "support_agent",
        "roles": ["support_agent"],
        "subject": "u:user:771",
        "scopes": ["orders.read"],
        "delegation_live": True,
    },
    "agent": {
        "agent_id": "agt_support",
        "agent_urn": "agent:contextos/support-refund@1.2.0",
        "ceiling": "destructive",
        "lifecycle": "active",
        "owner": "usr_owner_1",
        "platform_scopes": ["tools:read"],
        "role": "support_ops",
        "scopes": ["orders.read"],
        "workload_identity": "spiffe://contextos/agents/support",
    },
    "delegation": {
        "agent_id": "agt_support",
        "expires_at": 4102444800,
        "scopes": ["orders.read"],
        "subject": "usr_771",
    },
}


@pytest.mark.parametrize("version", [None, 7])
def test_the_same_people_are_stated_as_the_same_with_the_version_of_the_directory(version: int | None) -> None:
    admitted = Principals.model_validate(KNOWN | {"directory_version": version})
    stated = admitted.looked_up_again(Principals.model_validate(KNOWN | {"directory_version": version}))
    assert stated == {"same": True} | ({"directory_version": version} if version else {})
    assert admitted.of_later(stated) == admitted


@pytest.mark.parametrize(
    "now",
    [
        KNOWN | {"directory_version": 8},
        KNOWN | {"user": KNOWN["user"] | {"scopes": []}},
        KNOWN | {"agent": KNOWN["agent"] | {"lifecycle": "suspended"}},
        KNOWN | {"delegation": None},
        None,
    ],
)
def test_other_people_are_stated_in_full_and_nobody_as_nobody(now: dict[str, Any] | None) -> None:
    admitted = Principals.model_validate(KNOWN | {"directory_version": 7})
    found = Principals.model_validate(now) if now else None
    stated = admitted.looked_up_again(found)
    assert stated == (found.to_json() if found else None)
    assert admitted.of_later(stated) == found
    DispatchIdentity.model_validate({"principals": stated, "policies_version": 1, "changed": []})
